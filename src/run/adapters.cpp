#include "run/adapters.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tracestep {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t out = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return out;
}

// True if the first name of `path` is a number of the range A-B that `pattern` begins with; both
// are cut off then.
bool takes_range(std::string_view& pattern, std::string_view& path) {
  const std::string_view name = pattern.substr(0, pattern.find('.'));
  const std::size_t dash = name.find('-');
  if (dash == name.npos) return false;
  const auto low = number(name.substr(0, dash)), high = number(name.substr(dash + 1));
  const std::string_view own = path.substr(0, path.find('.'));
  const auto value = number(own);
  if (!low || !high || !value || *value < *low || *value > *high) return false;
  pattern.remove_prefix(name.size());
  path.remove_prefix(own.size());
  return true;
}

// True if the whole pattern matches the path or its first parts. `starts_name`: both begin a name.
bool matches_here(std::string_view pattern, std::string_view path, bool starts_name) {
  if (pattern.empty()) return path.empty() || path.front() == '.';
  if (pattern.front() == '*') {
    for (std::size_t skipped = 0; skipped <= path.size(); ++skipped) {
      if (matches_here(pattern.substr(1), path.substr(skipped), false)) return true;
    }
    return false;
  }
  std::string_view after_range = pattern, rest = path;
  if (starts_name && takes_range(after_range, rest) && matches_here(after_range, rest, false)) {
    return true;
  }
  if (path.empty() || pattern.front() != path.front()) return false;
  return matches_here(pattern.substr(1), path.substr(1), pattern.front() == '.');
}

}  // namespace

bool path_matches(std::string_view pattern, std::string_view path) {
  return !pattern.empty() && matches_here(pattern, path, true);
}

std::string name_of(const FrozenParts& parts) {
  return parts.any() ? fmt::format("{}", fmt::join(parts.paths, "+")) : "none";
}

}  // namespace tracestep
