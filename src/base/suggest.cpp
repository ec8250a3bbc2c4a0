// Computes the restricted Damerau-Levenshtein distance with three rows of the table.
#include "base/suggest.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>
#include <tuple>

#include <fmt/ranges.h>

#include "base/error.h"

namespace tracestep {
namespace {

// The longest word that is compared: a longer one is no typing error of a flag, and costs time.
constexpr std::size_t kMaxWord = 64;

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// Returns the word without its leading dashes.
std::string_view letters_of(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

// Tells whether a part of the candidate between dashes or underscores is the word: "--max-tokens"
// for "--tokens", "peak_bytes" for "peak".
bool has_part(std::string_view candidate, std::string_view word) {
  const auto is_border = [&](std::size_t at) {
    return at >= candidate.size() || candidate[at] == '-' || candidate[at] == '_';
  };
  for (std::size_t at = candidate.find(word); at != candidate.npos;
       at = candidate.find(word, at + 1)) {
    if ((at == 0 || is_border(at - 1)) && is_border(at + word.size())) return true;
  }
  return false;
}

// How far a candidate is from the word, the nearest first: a slip of one letter, a name of which
// the word is a part, one that begins with it, more slips. Of equally many slips those that keep
// the length are likelier: "--modle" is "--model", and not "--mode".
using Rank = std::tuple<int, int, int>;

std::optional<Rank> rank_of(std::string_view candidate, std::string_view word) {
  constexpr std::size_t kShortestPart = 3;
  const int letters = static_cast<int>(word.size());
  const int length = static_cast<int>(candidate.size());
  const int distance = edit_distance(word, candidate);
  // A word that shares no letter with the candidate is not a slip of it.
  const bool is_slip = distance <= std::max(1, (letters + 1) / 3) && distance < length;
  if (is_slip && distance <= 1) return Rank{0, distance, std::abs(length - letters)};
  if (word.size() >= kShortestPart && has_part(candidate, word)) return Rank{1, length, 0};
  if (word.size() >= kShortestPart && candidate.starts_with(word)) return Rank{2, length, 0};
  if (!is_slip) return std::nullopt;
  return Rank{3, distance, std::abs(length - letters)};
}

template <class Candidates>
std::optional<std::string> closest_of(std::string_view word, const Candidates& candidates) {
  if (word.size() > kMaxWord) return std::nullopt;
  word = letters_of(word);
  std::optional<Rank> best;
  std::optional<std::string> answer;
  for (std::string_view candidate : candidates) {
    if (word.empty() || candidate.size() > kMaxWord) continue;
    const std::optional<Rank> rank = rank_of(letters_of(candidate), word);
    if (!rank || (best && *rank >= *best)) continue;
    best = rank;
    answer = std::string(candidate);
  }
  return answer;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = above[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates) {
  return closest_of(word, candidates);
}

std::optional<std::string> closest(std::string_view word,
                                   std::span<const std::string_view> candidates) {
  return closest_of(word, candidates);
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto found = closest(word, candidates);
  return found ? "; did you mean " + *found + "?" : std::string();
}

std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

void check_choice(const About& where, std::string_view text, std::span<const std::string> names) {
  if (std::ranges::find(names, text) != names.end()) return;
  throw Error(ErrorCode::kUsage, where,
              fmt::format("there is no \"{}\"{}", text, did_you_mean(text, names)),
              fmt::format("{}{}", names.size() > 1 ? "one of " : "only ", fmt::join(names, ", ")));
}

std::vector<std::string> checked_parts(const About& where, std::string_view text,
                                       std::span<const std::string> names) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t plus = std::min(text.find('+', start), text.size());
    std::string part(text.substr(start, plus - start));
    check_choice(where, part, names);
    if (std::ranges::find(out, part) != out.end()) fail_usage(where, "{} is there twice", part);
    out.push_back(std::move(part));
    start = plus + 1;
  }
  return out;
}

}  // namespace tracestep
