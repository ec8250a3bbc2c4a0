// The difference of texts follows Myers, "An O(ND) difference algorithm and its variations", 1986.
#include "cli/text_lines.h"

#include <algorithm>
#include <map>
#include <vector>

#include "lab/report/writers.h"

namespace tracestep::cli {
namespace {

constexpr std::size_t kColumns = 100;

}  // namespace

std::string wrapped(std::string lead, std::size_t indent, std::string_view text) {
  std::string out, line = std::move(lead);
  if (line.size() < indent) line.resize(indent, ' ');
  if (line.size() > indent) {
    out += line + "\n";
    line.assign(indent, ' ');
  }
  bool is_first = true;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (!is_first && display_width(line) + 1 + display_width(std::string(word)) > kColumns) {
      out += line + "\n";
      line.assign(indent, ' ');
      is_first = true;
    }
    if (!is_first) line += ' ';
    line += word;
    is_first = false;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out + line + "\n";
}

namespace {

constexpr int kContext = 3;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// The line without the numbers of values: "%12" becomes "%".
std::string without_numbers(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    out += line[i];
    if (line[i] != '%') continue;
    while (i + 1 < line.size() && line[i + 1] >= '0' && line[i + 1] <= '9') ++i;
  }
  return out;
}

std::vector<int> keys_of(const std::vector<std::string_view>& lines,
                         std::map<std::string, int>& known) {
  std::vector<int> out;
  out.reserve(lines.size());
  for (std::string_view line : lines) {
    out.push_back(
        known.emplace(without_numbers(line), static_cast<int>(known.size())).first->second);
  }
  return out;
}

struct Edit {
  char kind;  // ' ', '-' or '+'
  int line;   // of b for '+', else of a
};

// Returns, for each number of differences, the furthest x reached on each diagonal k = x - y.
std::vector<std::vector<int>> trace(const std::vector<int>& a, const std::vector<int>& b) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size()), offset = n + m + 1;
  std::vector<int> furthest(static_cast<std::size_t>(2 * offset + 1), 0);
  std::vector<std::vector<int>> out;
  const auto at = [&](int k) -> int& { return furthest[static_cast<std::size_t>(offset + k)]; };
  for (int d = 0; d <= n + m; ++d) {
    // Only the diagonals that this round may read are kept.
    out.emplace_back(furthest.begin() + offset - d - 1, furthest.begin() + offset + d + 2);
    for (int k = -d; k <= d; k += 2) {
      int x = k == -d || (k != d && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
      int y = x - k;
      while (x < n && y < m && a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(y)]) {
        ++x;
        ++y;
      }
      at(k) = x;
      if (x >= n && y >= m) return out;
    }
  }
  return out;
}

std::vector<Edit> edits(const std::vector<int>& a, const std::vector<int>& b) {
  const std::vector<std::vector<int>> rounds = trace(a, b);
  std::vector<Edit> out;
  int x = static_cast<int>(a.size()), y = static_cast<int>(b.size());
  for (int d = static_cast<int>(rounds.size()) - 1; d >= 0; --d) {
    const auto at = [&](int k) {
      return rounds[static_cast<std::size_t>(d)][static_cast<std::size_t>(k + d + 1)];
    };
    const int k = x - y;
    const bool is_insert = k == -d || (k != d && at(k - 1) < at(k + 1));
    const int from_k = is_insert ? k + 1 : k - 1;
    const int from_x = d == 0 ? 0 : at(from_k), from_y = d == 0 ? 0 : from_x - from_k;
    while (x > from_x && y > from_y && (d == 0 || x > (is_insert ? from_x : from_x + 1))) {
      out.push_back({' ', --x});
      --y;
    }
    if (d == 0) break;
    out.push_back(is_insert ? Edit{'+', from_y} : Edit{'-', from_x});
    x = from_x;
    y = from_y;
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace

std::string program_diff(std::string_view a, std::string_view b) {
  const auto old_lines = lines_of(a), new_lines = lines_of(b);
  std::map<std::string, int> known;
  const auto old_keys = keys_of(old_lines, known), new_keys = keys_of(new_lines, known);
  const std::vector<Edit> all = edits(old_keys, new_keys);
  std::vector<bool> near(all.size(), false);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind == ' ') continue;
    const std::size_t first = i < kContext ? 0 : i - kContext;
    const std::size_t last = std::min(all.size() - 1, i + kContext);
    std::fill(near.begin() + static_cast<std::ptrdiff_t>(first),
              near.begin() + static_cast<std::ptrdiff_t>(last) + 1, true);
  }
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!near[i]) continue;
    if (i > 0 && !near[i - 1] && !out.empty()) out += "...\n";
    const auto line = static_cast<std::size_t>(all[i].line);
    out += all[i].kind;
    out += all[i].kind == '+' ? new_lines[line] : old_lines[line];
    out += '\n';
  }
  return out;
}

}  // namespace tracestep::cli
