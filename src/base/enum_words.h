// Enums with a word for each enumerator. The words are said once, right after the enum:
//
//   enum class Order { kSequential, kShuffled };
//   TRACESTEP_WORDS(Order, "sequential", "shuffled");
//
// name_of(Order::kShuffled), named<Order>("shuffled") and kAll<Order> read them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

// The words of `Enum`, whose enumerators are 0, 1, 2 and so on, in this order. A word too few or
// too many does not compile.
#define TRACESTEP_WORDS(Enum, ...)                         \
  constexpr auto words_for(Enum) {                         \
    return std::to_array<std::string_view>({__VA_ARGS__}); \
  }                                                        \
  static_assert(::tracestep::has_enumerators<Enum, words_for(Enum{}).size()>)

namespace tracestep {

// True if `value` is an enumerator of its type. The compiler writes any other value as a number in
// the name of this function: "(tracestep::Order)2".
template <auto value>
constexpr bool is_enumerator() {
  const std::string_view text = __PRETTY_FUNCTION__;
  const char next = text[text.rfind(')') + 1];
  return next < '0' || next > '9';
}

// True if `count` - 1 is the last enumerator of E.
template <class E, std::size_t count>
inline constexpr bool has_enumerators = is_enumerator<static_cast<E>(count - 1)>() &&
                                        !is_enumerator<static_cast<E>(count)>();

template <class E>
concept HasWords = requires(E value) {
  words_for(value);
};

template <HasWords E>
inline constexpr auto kWords = words_for(E{});

// All enumerators of E, in their order.
template <HasWords E>
inline constexpr auto kAll = [] {
  std::array<E, kWords<E>.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<E>(i);
  return out;
}();

// Returns the word of an enumerator from `words`, which has one for each, in their order; "?" for a
// number that is no enumerator. It serves enums whose words are needed in a single place.
template <class E, std::size_t n>
constexpr std::string_view word_of(E value, const std::string_view (&words)[n]) {
  static_assert(has_enumerators<E, n>, "one word for each enumerator");
  const auto i = static_cast<std::size_t>(value);
  return i < n ? words[i] : "?";
}

// Returns the word of an enumerator; "?" for a number that is no enumerator.
template <HasWords E>
constexpr std::string_view name_of(E value) {
  const auto i = static_cast<std::size_t>(value);
  return i < kWords<E>.size() ? kWords<E>[i] : "?";
}

// Returns the enumerator with this word; nullopt: there is none.
template <HasWords E>
constexpr std::optional<E> named(std::string_view word) {
  for (const E value : kAll<E>) {
    if (name_of(value) == word) return value;
  }
  return std::nullopt;
}

}  // namespace tracestep
