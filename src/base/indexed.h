// Indices into vectors with an entry for each node or value of a program, and into the words of an
// enum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tracestep {

// The index of a node or value in a vector that has an entry for each: parts_[at(id)].
constexpr std::size_t at(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

// The word of an enumerator. `words` has one for each, in the order of the enum, whose last
// enumerator is `last`; a missing word does not compile: return
// word_of<Severity::kInvalid>(severity, {"note", "doubt", "invalid"}); Gives "?" for a number that
// is no enumerator.
template <auto last, std::size_t n>
constexpr std::string_view word_of(decltype(last) value, const std::string_view (&words)[n]) {
  static_assert(n == static_cast<std::size_t>(last) + 1, "one word for each enumerator");
  const auto i = static_cast<std::size_t>(value);
  return i < n ? words[i] : "?";
}

}  // namespace tracestep
