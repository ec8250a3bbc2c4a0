// Aligned columns for a terminal.
#include <algorithm>
#include <numeric>
#include <ostream>

#include <fmt/ranges.h>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

constexpr std::size_t kGap = 2;         // between columns
constexpr std::size_t kLeastText = 24;  // a text column may be as narrow as this
constexpr std::size_t kMostLines = 3;   // of a cell

// --- colours
// ---------------------------------------------------------------------------------------

enum class Tone { kPlain, kGood, kDoubtful, kBad };

// What a verdict or a status means; cells of other columns are plain.
Tone tone_of(std::string_view header, std::string_view cell) {
  if (header != "verdict" && header != "status") return Tone::kPlain;
  const auto begins = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](auto word) { return cell.starts_with(word); });
  };
  if (begins({"ok", "agree", "faster", "fits"})) return Tone::kGood;
  if (begins({"doubt", "unclear", "interrupted"})) return Tone::kDoubtful;
  if (begins({"invalid", "oom", "does not fit", "slower", "suspicious", "spill"}))
    return Tone::kBad;
  return Tone::kPlain;
}

// The tone of a note is that of its first word: "doubt: …".
Tone tone_of_note(std::string_view note) {
  if (note.starts_with("doubt: ")) return Tone::kDoubtful;
  return note.starts_with("invalid: ") ? Tone::kBad : Tone::kPlain;
}

std::string coloured(const std::string& text, Tone tone, const TextView& view) {
  constexpr int kColours[] = {0, 32, 33, 31};
  if (!view.has_colour || tone == Tone::kPlain) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", kColours[static_cast<std::size_t>(tone)], text);
}

// --- widths
// ----------------------------------------------------------------------------------------

// The bytes of the first `count` characters.
std::size_t bytes_of(const std::string& text, std::size_t count) {
  std::size_t at = 0, seen = 0;
  for (; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xc0u) != 0x80u;
    if (begins && ++seen > count) break;
  }
  return at;
}

// Where a line of at most `end` bytes ends: at a blank, else behind a separator, else in a word.
std::size_t end_of_line(const std::string& text, std::size_t end) {
  const std::size_t blank = text.rfind(' ', end), least = end / 4;
  if (blank != std::string::npos && blank > least) return blank;
  const std::size_t separator = text.find_last_of("/.:_,;(", end - 1);
  return separator != std::string::npos && separator > least ? separator + 1 : end;
}

// In lines of at most `width` characters; "…" stands for what does not fit into kMostLines.
std::vector<std::string> lines_of(std::string text, std::size_t width) {
  std::vector<std::string> out;
  while (display_width(text) > width && out.size() + 1 < kMostLines) {
    const std::size_t end = end_of_line(text, bytes_of(text, width));
    out.push_back(text.substr(0, end));
    text.erase(0, end + (text[end] == ' ' ? 1 : 0));
  }
  if (display_width(text) > width) text = text.substr(0, bytes_of(text, width - 1)) + "…";
  out.push_back(std::move(text));
  return out;
}

std::vector<std::size_t> natural_widths(const DisplayTable& shown) {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < shown.headers.size(); ++c) {
    std::size_t width = display_width(shown.headers[c]);
    for (const auto& row : shown.rows) width = std::max(width, display_width(row[c]));
    out.push_back(width);
  }
  return out;
}

// Columns with the result of a row, which get room before others.
bool is_first(std::string_view header) {
  constexpr std::string_view kFirst[] = {
      "verdict",     "status",         "value",        "claimed",        "right",    "peak",
      "median (ms)", "predicted peak", "kernels (ms)", "predicted (ms)", "from (ms)"};
  return std::ranges::find(kFirst, header) != std::end(kFirst);
}

// The ends of an interval, "from (ms)" and "to (ms)", are shown together or not at all.
bool begins_interval(const std::vector<std::string>& headers, std::size_t c) {
  const auto words = [&](std::size_t at) { return headers[at].substr(0, headers[at].find(" (")); };
  return c + 1 < headers.size() && words(c).ends_with("from") && words(c + 1) == "to";
}

// Columns get their least width, the first column and those of is_first() before the others from
// the left; room that remains widens texts. A column that is left out has width 0.
std::vector<std::size_t> fitting_widths(const DisplayTable& shown, const TextView& view) {
  const std::vector<std::size_t> natural = natural_widths(shown);
  const std::size_t all =
      std::accumulate(natural.begin(), natural.end(), kGap * (natural.size() - 1));
  if (view.width == 0 || natural.empty() || all <= view.width) return natural;
  std::vector<std::size_t> order(natural.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_partition(
      order, [&](std::size_t c) { return c == 0 || is_first(shown.headers[c]); });
  std::vector<std::size_t> out(natural.size(), 0);
  std::size_t room = view.width + kGap;
  const auto least = [&](std::size_t c) {
    return shown.is_right_aligned[c] ? natural[c] : std::min(natural[c], kLeastText);
  };
  for (std::size_t c : order) {
    if (c > 0 && begins_interval(shown.headers, c - 1)) continue;
    const std::size_t end = c + (begins_interval(shown.headers, c) ? 2 : 1);
    std::size_t needed = 0;
    for (std::size_t k = c; k < end; ++k) needed += least(k) + kGap;
    if (needed > room) continue;
    for (std::size_t k = c; k < end; ++k) out[k] = least(k);
    room -= needed;
  }
  for (std::size_t c = 0; c < out.size(); ++c) {
    if (out[c] == 0) continue;
    const std::size_t more = std::min(natural[c] - out[c], room);
    out[c] += more;
    room -= more;
  }
  return out;
}

// --- lines
// -----------------------------------------------------------------------------------------

// A row, in as many lines as its longest text takes.
void write_row(const std::vector<std::string>& cells, const DisplayTable& shown,
               const std::vector<std::size_t>& widths, const TextView& view, std::ostream& out) {
  std::vector<std::vector<std::string>> parts(cells.size());
  std::size_t height = 1;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (widths[c] > 0) parts[c] = lines_of(cells[c], widths[c]);
    height = std::max(height, parts[c].size());
  }
  for (std::size_t k = 0; k < height; ++k) {
    std::string line;
    std::size_t end = 0;  // of the last visible character
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (widths[c] == 0) continue;
      if (!line.empty()) line += "  ";
      const std::string part = k < parts[c].size() ? parts[c][k] : "";
      line += coloured(padded(part, widths[c], shown.is_right_aligned[c]),
                       tone_of(shown.headers[c], cells[c]), view);
      end = line.find_last_not_of(' ') + 1;
    }
    out << line.substr(0, end) << '\n';
  }
}

void write_rule(const std::vector<std::size_t>& widths, std::ostream& out) {
  std::string line;
  for (std::size_t width : widths) {
    if (width > 0) line += (line.empty() ? "" : "  ") + std::string(width, '-');
  }
  out << line << '\n';
}

void write_left_out(const DisplayTable& shown, const std::vector<std::size_t>& widths,
                    const TextView& view, std::ostream& out) {
  std::vector<std::string> names;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (widths[c] == 0 && !shown.headers[c].empty()) names.push_back(shown.headers[c]);
  }
  if (names.empty()) return;
  out << fmt::format("\nnot shown for lack of width: {}{}\n", fmt::join(names, ", "), view.way_out);
}

void write_table(const Table& table, const TextView& view, std::ostream& out) {
  const DisplayTable shown = display(table);
  const std::vector<std::size_t> widths = fitting_widths(shown, view);
  if (!shown.title.empty()) out << shown.title << "\n\n";
  if (!shown.rows.empty()) {
    write_row(shown.headers, shown, widths, {}, out);
    write_rule(widths, out);
    for (const auto& row : shown.rows) write_row(row, shown, widths, view, out);
    write_left_out(shown, widths, view, out);
    if (!shown.notes.empty()) out << '\n';
  }
  for (const std::string& note : shown.notes) {
    out << coloured(note, tone_of_note(note), view) << '\n';
  }
}

}  // namespace

void write_text(const Document& document, std::ostream& out) {
  write_text(document, out, {});
}

void write_text(const Document& document, std::ostream& out, const TextView& view) {
  bool first = true;
  for (const Table& table : document.tables) {
    if (is_silent(table)) continue;
    if (!first) out << '\n';
    first = false;
    write_table(table, view, out);
  }
}

}  // namespace tracestep
