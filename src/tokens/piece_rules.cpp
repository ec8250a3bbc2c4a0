#include "tokens/piece_rules.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"

namespace tracestep {
namespace {

// The most bytes by which a rule may replace a character; compatibility forms (NFKC) need 33.
constexpr std::size_t kMostBytes = 64;
constexpr std::size_t kUnitBytes = 4, kLabels = 256;

std::optional<std::uint64_t> take_number(std::string_view& message) {
  std::uint64_t out = 0;
  for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    out |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return out;
  }
  return std::nullopt;
}

// Calls `on_field(bytes)` for each field of `message` that has this number and holds bytes.
template <class OnField>
void for_each_field(std::string_view message, std::uint64_t number, OnField&& on_field) {
  while (!message.empty()) {
    const auto tag = take_number(message);
    if (!tag) return;
    std::uint64_t size = 0;
    switch (*tag % 8) {
      case 0: take_number(message); break;
      case 1: size = 8; break;
      case 2: size = take_number(message).value_or(message.size() + 1); break;
      case 5: size = 4; break;
      default: return;
    }
    if (size > message.size()) return;
    if (*tag == number * 8 + 2) on_field(message.substr(0, size));
    message.remove_prefix(size);
  }
}

std::uint32_t number_at(std::string_view bytes, std::size_t index) {
  std::uint32_t out = 0;
  for (std::size_t i = kUnitBytes; i-- > 0;) {
    out = out << 8u | static_cast<unsigned char>(bytes[index * kUnitBytes + i]);
  }
  return out;
}

// True if no unit of the double array `trie` points outside it, and no text begins outside `texts`.
bool stays_within(std::string_view trie, std::string_view texts) {
  const std::size_t count = trie.size() / kUnitBytes;
  for (std::size_t at = 0; at < count; ++at) {
    const std::uint32_t unit = number_at(trie, at);
    if (at > 0 && (unit >> 31u) != 0) continue;  // the unit holds the place of a text
    const std::size_t offset = std::size_t{unit >> 10u} << ((unit >> 9u & 1u) * 8);
    const std::size_t next = at ^ offset;
    if ((next | (kLabels - 1)) >= count) return false;
    const bool has_text = (unit >> 8u & 1u) != 0;
    if (has_text && (number_at(trie, next) & 0x7fffffffu) >= texts.size()) return false;
  }
  return count > 0 && texts.ends_with('\0');
}

void check_rules(std::string_view rules, const std::string& origin) {
  if (rules.empty()) return;
  const std::size_t size = rules.size() < kUnitBytes ? rules.size() : number_at(rules, 0);
  rules.remove_prefix(std::min(rules.size(), kUnitBytes));
  if (size > rules.size() || !stays_within(rules.substr(0, size), rules.substr(size))) {
    fail_input("tokenizer"_field, "{}: its rules for characters are damaged", origin);
  }
  for (std::string_view texts = rules.substr(size); !texts.empty();) {
    const std::size_t end = texts.find('\0');
    if (end > kMostBytes) {
      fail_input("tokenizer"_field,
                 "{}: a rule makes {} bytes of a character; at most {} are taken", origin, end,
                 kMostBytes);
    }
    texts.remove_prefix(end + 1);
  }
}

}  // namespace

void check_piece_rules(std::string_view model, const std::string& origin) {
  constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5, kRules = 2;
  for (const std::uint64_t part : {kNormalizer, kDenormalizer}) {
    for_each_field(model, part, [&](std::string_view spec) {
      for_each_field(spec, kRules, [&](std::string_view rules) { check_rules(rules, origin); });
    });
  }
}

}  // namespace tracestep
