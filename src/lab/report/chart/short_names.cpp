#include "lab/report/chart/drawings.h"

#include <algorithm>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

constexpr std::size_t kLetters = 36, kHeadLetters = 14;

bool is_of_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Returns a name without "void " at its start and every "name::" and "(anonymous namespace)::".
std::string plain(std::string name) {
  constexpr std::string_view kVoid = "void ", kAnonymous = "(anonymous namespace)";
  if (name.starts_with(kVoid)) name.erase(0, kVoid.size());
  for (std::size_t at = name.find("::"); at != std::string::npos; at = name.find("::")) {
    std::size_t begin = at;
    if (std::string_view(name).substr(0, at).ends_with(kAnonymous)) {
      begin = at - kAnonymous.size();
    } else {
      while (begin > 0 && is_of_word(name[begin - 1])) --begin;
    }
    name.erase(begin, at + 2 - begin);
  }
  return name;
}

std::size_t shared_letters(const std::string& a, const std::string& b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  return static_cast<std::size_t>(end - a.begin());
}

// Cuts out at most `count` bytes from byte `from` on, without parts of characters at the ends.
std::string part_of(const std::string& text, std::size_t from, std::size_t count) {
  const auto is_inside = [&](std::size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0u) == 0x80u;
  };
  std::size_t end = std::min(text.size(), from + count);
  while (is_inside(from)) ++from;
  while (end > from && is_inside(end)) --end;
  return text.substr(from, end - from);
}

// How many first letters a name shares with others that begin alike: the fewest, and the most.
struct Shared {
  std::size_t least = std::string::npos, most = 0;
};

Shared shared_with_others(const std::vector<std::string>& names, std::size_t i) {
  Shared out;
  for (const std::string& other : names) {
    const std::size_t same = shared_letters(names[i], other);
    if (other == names[i] || same < kHeadLetters) continue;
    out.least = std::min(out.least, same);
    out.most = std::max(out.most, same);
  }
  return out;
}

// Cuts a name to its head and the letters from byte `from` on, or from further left if few remain.
std::string shortened(const std::string& name, std::size_t from) {
  const std::size_t room = kLetters - kHeadLetters - 1;
  from = std::min(std::max(from, kHeadLetters), name.size() - room);
  return from <= kHeadLetters ? part_of(name, 0, kLetters - 1) + "…"
                              : part_of(name, 0, kHeadLetters) + "…" + part_of(name, from, room);
}

}  // namespace

std::vector<std::string> short_names(std::span<const std::string> names) {
  std::vector<std::string> all;
  for (const std::string& name : names) all.push_back(plain(name));
  const auto is_long = [&](std::size_t i) { return display_width(all[i]) > kLetters; };
  // Names are cut to begin at the first letter that differs between two of them.
  std::vector<std::string> out = all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t least = shared_with_others(all, i).least;
    if (is_long(i)) out[i] = shortened(all[i], least == std::string::npos ? 0 : least);
  }
  // Names that are still equal begin at the letter that differs from the most similar name.
  const std::vector<std::string> before = out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool is_ambiguous = false;
    for (std::size_t k = 0; k < all.size(); ++k) {
      is_ambiguous = is_ambiguous || (before[k] == before[i] && all[k] != all[i]);
    }
    if (is_long(i) && is_ambiguous) out[i] = shortened(all[i], shared_with_others(all, i).most - 4);
  }
  return out;
}

}  // namespace tracestep
