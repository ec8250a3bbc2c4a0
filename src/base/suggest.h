// "did you mean ...": the known word nearest to a mistyped one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "base/error.h"

namespace tracestep {

// Returns the least number of insertions, deletions, replacements and swaps of neighbours that turn
// `a` into `b`, ignoring case.
int edit_distance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `word`, if it is near enough to be a typing error (about one
// error in three letters), or has the word as a part or at its start; the first of several equally
// near ones.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates);
std::optional<std::string> closest(std::string_view word,
                                   std::span<const std::string_view> candidates);

// Returns the hint "; did you mean X?", or an empty text, to be appended to a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// Returns a name in one case and without blanks, the same for "RTX 5090" and "rtx5090".
std::string folded(std::string_view name);

// Throws Error{kUsage} naming `where`, the nearest name and all names, unless `text` is one of
// `names`.
void check_choice(const About& where, std::string_view text, std::span<const std::string> names);

// Returns the words of all enumerators of E, as check_choice() takes them.
template <HasWords E>
std::vector<std::string> words_of_all() {
  return {kWords<E>.begin(), kWords<E>.end()};
}

// Splits "a+b" and checks each part by check_choice(). Throws Error{kUsage} naming `where` also if
// a part occurs twice.
std::vector<std::string> checked_parts(const About& where, std::string_view text,
                                       std::span<const std::string> names);

}  // namespace tracestep
