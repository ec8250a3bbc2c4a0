#include "lab/study/phrases.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_map>

namespace tracestep::testing {
namespace {

// Longer phrases stand before their parts.
constexpr Phrase kPhrases[] = {
    {"less than in proportion", "<"},
    {"more than in proportion", ">"},
    {"the others grow more", "<"},
    {"the others grow less", ">"},
    {"does not grow", "i"},
    {"not longer", "<=~", "t"},
    {"not apart", "~"},
    {"neither is larger", "~"},
    {"no single buffer is larger than", "=", "^"},
    {"not yet the larger", "<"},
    {"cannot be told", "~"},
    {"leaves open", "~"},
    {"leave open", "~"},
    {"noise hides", "~"},
    {"is not the long one", "<", "t"},
    {"more, or about as much", "=>i"},
    {"less, or about as much", "=<i"},
    {"ends lower", "<"},
    {"ends higher", ">"},
    {"ends as high as", "="},
    {"comes down", "<"},
    {"in order, the longest first", "=", "^"},
    {"the largest part first", "=", "^"},
    {"most of them", "="},
    {"cheapest to compute again", "=", "^"},  // most bytes for the time
    {"not every", "<"},
    {"none", "="},
    {"every time", "="},
    {"yes, in all", "="},
    {"no leading", "="},
    {"no row", "="},
    {"no difference", "i", "n"},
    {"rises", ">"},
    {"climbs", ">"},
    {"increases", ">"},
    {"more", ">"},
    {"longer", ">", "t"},
    {"larger", ">"},
    {"bigger", ">"},
    {"greater", ">"},
    {"slower", ">", "t"},
    {"higher", ">"},
    {"above", ">"},
    {"coarser", ">"},
    {"outweigh", ">"},
    {"exceeds", ">"},
    {"dominates", ">"},
    {"less", "<"},
    {"fewer", "<"},
    {"shorter", "<", "t"},
    {"smaller", "<"},
    {"faster", "<", "t"},
    {"quicker", "<", "t"},
    {"times as fast", "<", "t"},
    {"lower", "<"},
    {"below", "<"},
    {"finer", "<"},
    {"decreases", "<"},
    {"shrinks", "<"},
    {"drops", "<"},
    {"falls clearly", "<"},
    {"falls little", "i"},
    {"falls", "<"},
    {"the same", "=i", "n"},
    {"unchanged", "=i", "n"},
    {"identical", "="},
    {"equal", "=i", "n"},
    {"alike", "=i", "n"},
    {"as much", "=i", "n"},
    {"as long", "=i", "tn"},
    {"as fast", "=i", "tn"},
    {"about", "i", "n"},
    {"doubles", "i<>", "", 2},
    {"twice", "i<>", "", 2},
    {"triples", "i<>", "", 3},
    {"three times", "i<>", "", 3},
    {"four times", "i<>", "", 4},
    {"five times", "i<>", "", 5},
    {"ten times", "i<>", "", 10},
    {"tenfold", "i<>", "", 10},
    {"half", "i<>", "", 0.5},
    {"halves", "i<>", "", 0.5},
    {"a third", "i<>", "", 1.0 / 3},
    {"two thirds", "i<>", "", 2.0 / 3},
    {"a quarter", "i<>", "", 0.25},
    {"near", "i", "n"},
    {"nearly", "i", "n"},
    {"almost", "i", "n"},
    {"within", "i"},
    {"in proportion", "=i", "n"},
    {"agree", "=i>"},
    {"follows", "i", "n"},
    {"negligible", "<i"},
    {"largest", "=", "^"},
    {"biggest", "=", "^"},
    {"longest", "=", "^"},
    {"highest", "=", "^"},
    {"slowest", "=", "^"},
    {"most", "=", "^"},
    {"least", "=", "v"},
    {"smallest", "=", "v"},
    {"shortest", "=", "v"},
    {"fastest", "=", "v"},
    {"cheapest", "=", "v"},
    {"earliest", "=", "v"},
    {"lowest", "=", "v"},
    {"best", "=", "^v"},
    {"worst", "=", "^v"},
    {"than", "<=~>i"},
};

// Phrases with such words, or with numbers in letters, that claim nothing of the tables.
constexpr const char* kHarmless[] = {
    "at least",          "two moments",      "two graphs",           "two devices",
    "the two ",          "times as long",    "more than that label", "first two",
    "takes six of each", "has two for each", "not of the same work", "no three contexts",
};

constexpr const char* kNegations[] = {"not ",     "no ",  "never ", "hardly ",
                                      "neither ", "nor ", "isn't ", "cannot be "};

constexpr const char* kNumbers[] = {
    "two",    "three",  "four",   "five",  "six",    "seven",   "eight",    "nine",     "ten",
    "eleven", "twelve", "twenty", "dozen", "dozens", "hundred", "hundreds", "thousand", "million"};
constexpr const char* kFractions[] = {"½", "⅓", "⅔", "¼", "¾"};

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

// By their first letters.
const std::array<std::vector<const Phrase*>, 26>& phrases_by_letter() {
  static const auto all = [] {
    std::array<std::vector<const Phrase*>, 26> out;
    for (const Phrase& p : kPhrases)
      out.at(static_cast<std::size_t>(p.words[0] - 'a')).push_back(&p);
    return out;
  }();
  return all;
}

// In lower case, without harmless phrases and clauses with "whether".
std::string claiming_part(const std::string& words) {
  std::string text = lower(words);
  for (const char* harmless : kHarmless) {
    for (std::size_t at; (at = text.find(harmless)) != std::string::npos;) {
      text.replace(at, std::strlen(harmless), std::strlen(harmless), '_');
    }
  }
  for (std::size_t at; (at = text.find("whether")) != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(",.;:", at), text.size());
    text.replace(at, end - at, end - at, '_');
  }
  return text;
}

// Whether one of the two words before `at` in its clause negates it.
bool is_negated_at(const std::string& text, std::size_t at) {
  std::size_t begin = at;
  for (int words = 0; words < 2 && begin > 0; ++words) {
    const std::size_t space = begin < 2 ? std::string::npos : text.rfind(' ', begin - 2);
    begin = space == std::string::npos ? 0 : space + 1;
  }
  const std::string before = text.substr(begin, at - begin);
  if (before.find_first_of(",.;:") != std::string::npos) return false;
  return std::ranges::any_of(kNegations, [&](const char* negation) {
    const std::size_t found = before.find(negation);
    return found != std::string::npos && (found == 0 || !is_letter(before[found - 1]));
  });
}

std::vector<FoundPhrase> found_in(const std::string& words) {
  const std::string text = claiming_part(words);
  std::vector<FoundPhrase> out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] < 'a' || text[at] > 'z' || (at > 0 && is_letter(text[at - 1]))) continue;
    const auto& candidates = phrases_by_letter()[static_cast<std::size_t>(text[at] - 'a')];
    const auto found = std::ranges::find_if(
        candidates, [&](const Phrase* p) { return stands_at(text, at, p->words); });
    if (found == candidates.end()) continue;
    const bool is_than = std::string_view((*found)->words) == "than";  // of another phrase
    out.push_back({*found, !is_than && is_negated_at(text, at)});
    at += std::strlen((*found)->words) - 1;
  }
  return out;
}

// Close enough together that "about" and "the same" may be said of it: percent around nothing, or
// a factor.
bool is_narrow(double low, double high) {
  constexpr double kFactor = 2.0, kPercent = 20.0;
  return low > 0 ? high <= kFactor * low : high - low <= kPercent;
}

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

// But for those of phrases, which relations bear out.
bool has_number_word(const std::string& words) {
  std::string text = claiming_part(words);
  for (const Phrase& phrase : kPhrases) {
    if (phrase.factor == 0) continue;
    for (std::size_t at; (at = text.find(phrase.words)) != std::string::npos;) {
      text.replace(at, std::strlen(phrase.words), "_");
    }
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && is_letter(text[at - 1])) continue;
    for (const char* number : kNumbers) {
      if (text[at] == number[0] && stands_at(text, at, number)) return true;
    }
  }
  return false;
}

}  // namespace

const std::vector<FoundPhrase>& phrases_in(const std::string& words) {
  // Answers say the same words again and again, and the search takes longer than all else.
  static std::unordered_map<std::string, std::vector<FoundPhrase>> known;
  const auto found = known.find(words);
  return found != known.end() ? found->second : known.emplace(words, found_in(words)).first->second;
}

bool bears_out(const EvaluatedRelation& relation, const Phrase& phrase) {
  const char symbol = relation.symbol[0];
  if (std::strchr(phrase.symbols, symbol) == nullptr) return false;
  const auto needs = [&](char what) { return std::strchr(phrase.needs, what) != nullptr; };
  if (needs('t') && relation.unit == Unit::kBytes) return false;
  const auto is_of = [&](const char* extreme) { return relation.right.starts_with(extreme); };
  const bool is_extreme = (needs('^') && is_of("max(")) || (needs('v') && is_of("min("));
  if ((needs('^') || needs('v')) && !is_extreme) return false;
  if (needs('n') && symbol == 'i' && !is_narrow(relation.low, relation.high)) return false;
  if (phrase.factor == 0) return true;
  if (symbol == 'i') return relation.low <= phrase.factor && phrase.factor <= relation.high;
  return symbol == '<' ? relation.low <= phrase.factor : relation.high >= phrase.factor;
}

bool has_number(const std::string& words) {
  static std::unordered_map<std::string, bool> known;
  const auto found = known.find(words);
  if (found != known.end()) return found->second;
  const bool has_fraction = std::ranges::any_of(
      kFractions, [&](const char* c) { return words.find(c) != std::string::npos; });
  return known[words] = has_fraction || has_digits(words) || has_number_word(words);
}

}  // namespace tracestep::testing
