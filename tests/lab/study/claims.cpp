#include "lab/study/claims.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "lab/pages/page.h"
#include "lab/study/formula.h"
#include "lab/study/refusals.h"

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
  // A mean and its deviation: "25.4 ± 0.9 ms" is read as its mean.
  if (const std::size_t sign = words.find(" ± "); sign != std::string::npos) {
    return parse_printed(words.substr(0, sign) + words.substr(words.rfind(' ')));
  }
  // A ratio and its interval: "1.58 (1.41 to 1.66)".
  if (const std::size_t sign = words.find(" ("); sign != std::string::npos) {
    return parse_printed(words.substr(0, sign));
  }
  int minutes = 0, seconds = 0, used = 0;
  if (std::sscanf(words.c_str(), "%d min %d s%n", &minutes, &seconds, &used) == 2 &&
      used == static_cast<int>(words.size())) {
    return Printed{1e3 * (60.0 * minutes + seconds), 500, Unit::kTime};
  }
  if (words.starts_with("one ")) return Printed{1, 0, Unit::kNone};  // "one slow step"
  const std::size_t end = words.find(' ');
  std::string number = words.substr(0, end);
  std::erase(number, ',');  // of thousands
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
  const bool says_percent = piece.words.ends_with(" %");
  if (says_percent && !truth.is_percent()) return "percent of what is a ratio";
  if (!says_percent && !truth.is_plain()) return "a ratio of what is percent";
  if (printed->value == 0 && truth.value != 0 && truth.unit != Unit::kBytes) {
    return "nothing, where its formula gives " + std::to_string(truth.value);
  }
  const double room = printed->half_digit * (1 + 1e-6) + 1e-9 * std::abs(truth.value);
  if (std::abs(printed->value - truth.value) <= room) return {};
  return "its formula gives " + std::to_string(truth.value);
}

// --- words that compare --------------------------------------------------------------------------

// Why a relation says nothing of a measurement; empty: it does.
std::string empty_relation(const EvaluatedRelation& r) {
  if ((r.left + r.right).find('[') == std::string::npos) return "compares no cell";
  if (r.left == r.right) return "compares a thing with itself";
  const bool orders = r.symbol == "<" || r.symbol == ">";
  const bool is_against_cells = r.right.find('[') != std::string::npos;
  if (orders && r.unit == Unit::kTime && is_against_cells && !r.has_noise) {
    return "compares times without their noise";
  }
  return {};
}

std::string wrong_relation(const Piece& piece, std::span<const Table> tables) {
  const std::vector<EvaluatedRelation> relations = evaluate_relation(piece.formula, tables);
  for (const EvaluatedRelation& relation : relations) {
    if (!relation.holds) return "does not hold";
    if (std::string empty = empty_relation(relation); !empty.empty()) return empty;
  }
  return {};
}

// --- quotations and words ------------------------------------------------------------------------

std::string wrong_quote(const Piece& piece, std::span<const Table> tables) {
  const Json& cell = cell_named(piece.formula, tables);
  if (!cell.is_string()) return "quotes what is no text";
  const std::string& text = cell.as_string();
  // A part that tells a name from others: "...tn_n_tilesize128x64x8...".
  const std::string& words = piece.words;
  if (words.starts_with("...") && words.ends_with("...") && words.size() > 6) {
    std::size_t at = 0;
    for (const std::string& part : pages::split(words.substr(3, words.size() - 6), " ... ")) {
      at = text.find(part, at);
      if (at == std::string::npos) return "no part of the cell";
    }
    return {};
  }
  const std::size_t cut = piece.words.find(" ... ");
  if (cut != std::string::npos && text.size() > piece.words.size()) {
    // message_line() leaves that much of a long text.
    constexpr std::size_t kLeast = 32;
    if (piece.words.size() < kLeast) return "quotes too little of the cell";
    const std::string head = piece.words.substr(0, cut), tail = piece.words.substr(cut + 5);
    return text.starts_with(head) && text.ends_with(tail) ? "" : "not what the cell says";
  }
  // Components of a model may be named by their first part.
  return text == piece.words || text.starts_with(piece.words + ".") ? "" : "not what the cell says";
}

// True if a word begins with a digit, as "float32" does not.
bool has_number(const std::string& words) {
  char before = ' ';
  for (const char c : words) {
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit && (before == ' ' || before == '(' || before == '+' || before == '-')) return true;
    before = c;
  }
  return false;
}

std::string wrong_in(const Piece& piece, std::span<const Table> tables) {
  switch (piece.basis) {
    case Basis::kNone: return has_number(piece.words) ? "a number without a formula" : "";
    case Basis::kFigure: return wrong_figure(piece, tables);
    case Basis::kRelation:
      return has_number(piece.words) ? "a number without a formula" : wrong_relation(piece, tables);
    case Basis::kQuote: return wrong_quote(piece, tables);
  }
  return "of no kind";
}

}  // namespace

std::vector<std::string> wrong_claims(const Text& text, std::span<const Table> tables) {
  std::vector<std::string> out;
  const auto add = [&](const Piece& piece, const std::string& wrong) {
    if (!wrong.empty()) out.push_back("\"" + piece.words + "\" [" + piece.formula + "]: " + wrong);
  };
  const std::vector<Piece>& pieces = text.pieces();
  const bool is_refusal = text.words().starts_with("No answer: ");
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool is_reason =
        is_refusal && pieces[i].basis == Basis::kQuote && pieces[i].formula.empty();
    try {
      const std::string wrong =
          is_reason ? wrong_reason(pieces[i].words, tables) : wrong_in(pieces[i], tables);
      add(pieces[i], wrong);
    } catch (const std::exception& error) {
      add(pieces[i], error.what());
    }
  }
  return out;
}

std::vector<std::string> wrong_claims(const Answer& answer, std::span<const Table> tables) {
  std::vector<std::string> out = wrong_claims(answer.text, tables);
  for (std::size_t i = 1; i < answer.lines.size(); ++i) {
    for (const Text& cell : answer.lines[i]) {
      for (std::string& wrong : wrong_claims(cell, tables)) out.push_back(std::move(wrong));
    }
  }
  return out;
}

}  // namespace tracestep::testing
