#include "lab/study/claims.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "lab/study/formula.h"

namespace tracestep::testing {
namespace {

// --- figures -------------------------------------------------------------------------------------

// A printed number: its value in milliseconds, bytes or as it stands, and half its last digit.
struct Printed {
  double value = 0, half_digit = 0;
  Unit unit = Unit::kNone;
};

struct UnitName {
  const char* name;
  double scale;
  Unit unit;
};
constexpr UnitName kUnits[] = {{"", 1, Unit::kNone},
                               {" %", 1, Unit::kNone},
                               {" ns", 1e-6, Unit::kTime},
                               {" µs", 1e-3, Unit::kTime},
                               {" ms", 1, Unit::kTime},
                               {" s", 1e3, Unit::kTime},
                               {" B", 1, Unit::kBytes},
                               {" KiB", 1024.0, Unit::kBytes},
                               {" MiB", 1048576.0, Unit::kBytes},
                               {" GiB", 1073741824.0, Unit::kBytes},
                               {" TiB", 1099511627776.0, Unit::kBytes},
                               {" PiB", 1125899906842624.0, Unit::kBytes}};

double half_of_last_digit(const std::string& number) {
  const std::size_t e = number.find('e'), point = number.find('.');
  const std::size_t end = std::min(e, number.size());
  const double exponent = e == std::string::npos ? 0 : std::stod(number.substr(e + 1));
  const double decimals = point == std::string::npos ? 0 : static_cast<double>(end - point - 1);
  return 0.5 * std::pow(10.0, exponent - decimals);
}

std::optional<Printed> parse_printed(const std::string& words) {
  int minutes = 0, seconds = 0, used = 0;
  if (std::sscanf(words.c_str(), "%d min %d s%n", &minutes, &seconds, &used) == 2 &&
      used == static_cast<int>(words.size())) {
    return Printed{1e3 * (60.0 * minutes + seconds), 500, Unit::kTime};
  }
  const std::size_t end = words.find(' ');
  const std::string number = words.substr(0, end);
  if (number.empty() || number.find_first_not_of("+-.0123456789e") != std::string::npos) return {};
  const std::string unit = end == std::string::npos ? "" : words.substr(end);
  for (const UnitName& known : kUnits) {
    if (unit != known.name) continue;
    // Bytes are whole ones of what may be a fraction.
    const double whole = known.unit == Unit::kBytes ? 0.5 : 0;
    return Printed{std::stod(number) * known.scale,
                   half_of_last_digit(number) * known.scale + whole, known.unit};
  }
  return {};
}

std::string wrong_figure(const Piece& piece, std::span<const Table> tables) {
  const std::optional<Printed> printed = parse_printed(piece.words);
  if (!printed) return "not a number with a known unit";
  const Evaluated truth = evaluate(piece.formula, tables);
  if (printed->unit != truth.unit) return "another unit than its formula has";
  const double room = printed->half_digit * (1 + 1e-6) + 1e-9 * std::abs(truth.value);
  if (std::abs(printed->value - truth.value) <= room) return {};
  return "its formula gives " + std::to_string(truth.value);
}

// --- words that compare --------------------------------------------------------------------------

// What a phrase says: the symbols of relations that bear it out. Longer phrases stand before their
// parts.
struct Phrase {
  const char* words;
  const char* symbols;  // of "<=~>i", i for "in"
};
constexpr Phrase kPhrases[] = {
    {"less than in proportion", "<"},
    {"more than in proportion", ">"},
    {"the others grow more", "<"},
    {"the others grow less", ">"},
    {"does not grow", "i"},
    {"not longer", "<=~"},
    {"not apart", "~"},
    {"neither is larger", "~"},
    {"not yet the larger", "<"},
    {"cannot be told", "~"},
    {"leaves open", "~"},
    {"leave open", "~"},
    {"noise hides", "~"},
    {"is not the long one", "<"},
    {"more, or as much", "=>i"},
    {"less, or as much", "=<i"},
    {"ends lower", "<"},
    {"ends higher", ">"},
    {"ends as high as", "="},
    {"comes down", "<"},
    {"in order, the longest first", "="},
    {"the largest part first", "="},
    {"most of them", "="},
    {"not every", "<"},
    {"none", "="},
    {"every time", "="},
    {"yes, in all", "="},
    {"no leading", "="},
    {"no row", "="},
    {"rises", ">"},
    {"climbs", ">"},
    {"more", ">"},
    {"longer", ">"},
    {"larger", ">"},
    {"slower", ">"},
    {"higher", ">"},
    {"above", ">"},
    {"coarser", ">"},
    {"outweigh", ">"},
    {"exceeds", ">"},
    {"less", "<"},
    {"shorter", "<"},
    {"smaller", "<"},
    {"faster", "<"},
    {"times as fast", "<"},
    {"lower", "<"},
    {"below", "<"},
    {"finer", "<"},
    {"falls clearly", "<"},
    {"falls little", "i"},
    {"falls", "<"},
    {"the same", "=i"},
    {"equal", "=i"},
    {"alike", "=i"},
    {"as much", "=i"},
    {"as long", "=i"},
    {"as fast", "=i"},
    {"about", "i"},
    {"twice", "i<>"},
    {"three times", "i<>"},
    {"four times", "i<>"},
    {"half", "i<>"},
    {"near", "i"},
    {"nearly", "i"},
    {"almost", "i"},
    {"within", "i"},
    {"in proportion", "=i"},
    {"agree", "=i>"},
    {"no difference", "i"},
    {"follows", "i"},
    {"largest", "="},
    {"longest", "="},
    {"highest", "="},
    {"most", "="},
    {"least", "="},
    {"smallest", "="},
    {"shortest", "="},
    {"slowest", "="},
    {"fastest", "="},
    {"cheapest", "="},
    {"earliest", "="},
};

constexpr struct {
  const char* words;
  double value;
} kNumberWords[] = {{"twice", 2}, {"three times", 3}, {"four times", 4}};

// Phrases with such words that claim nothing of the tables.
constexpr const char* kHarmless[] = {
    "at least", "two moments",   "two graphs",           "two devices",
    "the two ", "times as long", "more than that label",
};

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Whether `phrase` stands at `at` as whole words.
bool stands_at(const std::string& text, std::size_t at, std::string_view phrase) {
  if (text.compare(at, phrase.size(), phrase) != 0) return false;
  const std::size_t end = at + phrase.size();
  return (at == 0 || !is_letter(text[at - 1])) && (end >= text.size() || !is_letter(text[end]));
}

// The phrases in a text, without what only follows a "whether".
std::vector<Phrase> phrases_in(const std::string& words) {
  std::string text = lower(words);
  for (const char* harmless : kHarmless) {
    for (std::size_t at; (at = text.find(harmless)) != std::string::npos;) {
      text.replace(at, std::strlen(harmless), std::strlen(harmless), '_');
    }
  }
  text = text.substr(0, text.find("whether"));
  std::vector<Phrase> out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto found = std::ranges::find_if(
        kPhrases, [&](const Phrase& p) { return stands_at(text, at, p.words); });
    if (found == std::end(kPhrases)) continue;
    out.push_back(*found);
    at += std::strlen(found->words) - 1;
  }
  return out;
}

bool bears_out(const EvaluatedRelation& relation, const Phrase& phrase) {
  const char symbol = relation.symbol[0];
  if (std::strchr(phrase.symbols, symbol) == nullptr) return false;
  for (const auto& number : kNumberWords) {
    if (std::string_view(number.words) != phrase.words) continue;
    if (symbol == 'i') return relation.low <= number.value && number.value <= relation.high;
    return symbol == '<' ? relation.low <= number.value : relation.high >= number.value;
  }
  return true;
}

// Numbers in digits that are no part of a name, such as the 32 of float32.
bool has_digits(const std::string& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(words[i])) == 0) continue;
    std::size_t start = i;
    while (start > 0 && (is_letter(words[start - 1]) || words[start - 1] == '_' ||
                         std::isdigit(static_cast<unsigned char>(words[start - 1])) != 0)) {
      --start;
    }
    if (!is_letter(words[start])) return true;
  }
  return false;
}

std::string wrong_relation(const Piece& piece, std::span<const Table> tables) {
  const std::vector<EvaluatedRelation> relations = evaluate_relation(piece.formula, tables);
  for (const EvaluatedRelation& relation : relations) {
    if (!relation.holds) return "does not hold";
  }
  for (const Phrase& phrase : phrases_in(piece.words)) {
    const bool is_borne_out = std::ranges::any_of(
        relations, [&](const EvaluatedRelation& r) { return bears_out(r, phrase); });
    if (!is_borne_out) return std::string("does not say \"") + phrase.words + "\"";
  }
  if (has_digits(piece.words) && piece.words != "p < 0.001") return "has a number of its own";
  return {};
}

// --- quotations and words ------------------------------------------------------------------------

std::string wrong_quote(const Piece& piece, std::span<const Table> tables) {
  const Json& cell = cell_named(piece.formula, tables);
  if (!cell.is_string()) return "quotes what is no text";
  const std::string& text = cell.as_string();
  const std::size_t cut = piece.words.find(" ... ");
  if (cut != std::string::npos && text.size() > piece.words.size()) {
    const std::string head = piece.words.substr(0, cut), tail = piece.words.substr(cut + 5);
    return text.starts_with(head) && text.ends_with(tail) ? "" : "not what the cell says";
  }
  // Components of a model may be named by their first part.
  return text == piece.words || text.starts_with(piece.words + ".") ? "" : "not what the cell says";
}

std::string wrong_words(const Piece& piece) {
  if (has_digits(piece.words)) return "a number without a formula";
  const std::vector<Phrase> phrases = phrases_in(piece.words);
  if (!phrases.empty()) {
    return std::string("\"") + phrases[0].words + "\" without a relation";
  }
  return {};
}

std::string wrong_in(const Piece& piece, std::span<const Table> tables) {
  switch (piece.basis) {
    case Basis::kNone: return wrong_words(piece);
    case Basis::kFigure: return wrong_figure(piece, tables);
    case Basis::kRelation: return wrong_relation(piece, tables);
    case Basis::kQuote: return wrong_quote(piece, tables);
  }
  return "of no kind";
}

}  // namespace

std::vector<std::string> wrong_claims(const Text& text, std::span<const Table> tables) {
  std::vector<std::string> out;
  const bool is_refusal = text.words().starts_with("No answer: ");
  for (const Piece& piece : text.pieces()) {
    // The names of tables and columns that are missing.
    if (is_refusal && piece.basis == Basis::kQuote && piece.formula.empty()) continue;
    std::string wrong;
    try {
      wrong = wrong_in(piece, tables);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    if (!wrong.empty()) {
      out.push_back("\"" + piece.words + "\" [" + piece.formula + "]: " + wrong);
    }
  }
  return out;
}

}  // namespace tracestep::testing
