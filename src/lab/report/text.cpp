// Aligned columns for a terminal.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <ostream>
#include <set>

#include <fmt/ranges.h>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

constexpr std::size_t kGap = 2;         // between columns
constexpr std::size_t kLeastText = 24;  // a text column may be as narrow as this
constexpr std::size_t kWholeText = 48;  // and what is not cut as wide, before others get room
constexpr std::size_t kCellLines = 3, kHeadLines = 5;  // at most
constexpr std::size_t kLongCells = 20;                 // lines that cells of few rows share
constexpr std::size_t kNoteLines = 10;  // of notes on a screen, which rows leave to them

// --- colours ------------------------------------------------------------------------------------

enum class Tone { kPlain, kGood, kDoubtful, kBad };

// Returns the tone of a verdict, a status or a mark (whose header is blank); other cells are plain.
Tone tone_of(std::string_view header, std::string_view cell) {
  if (header != "verdict" && header != "status" && header != " ") return Tone::kPlain;
  const auto begins = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::any_of(words, [&](auto word) { return cell.starts_with(word); });
  };
  if (begins({"ok", "agree", "faster", "fits", "✓", "+"})) return Tone::kGood;
  if (begins({"doubt", "unclear", "interrupted", "~"})) return Tone::kDoubtful;
  if (begins({"impossible", "invalid", "oom", "does not fit", "slower", "suspicious", "spill", "✗",
              "x"}))
    return Tone::kBad;
  return Tone::kPlain;
}

// Returns the tone of a note, by its first words: "doubt: …".
Tone tone_of_note(std::string_view note) {
  if (note.starts_with("doubt: ") || note.starts_with("~ ")) return Tone::kDoubtful;
  return note.starts_with("invalid: ") || note.starts_with("✗ ") ? Tone::kBad : Tone::kPlain;
}

std::string coloured(const std::string& text, Tone tone, const TextView& view) {
  constexpr int kColours[] = {0, 32, 33, 31};
  if (!view.has_colour || tone == Tone::kPlain) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", kColours[static_cast<std::size_t>(tone)], text);
}

// --- widths -------------------------------------------------------------------------------------

// The widths of a column: of its cells as they are, the least that reads well, with a head and
// texts in several lines, and the least that cuts no word.
struct Width {
  std::size_t natural = 0, least = 0, narrowest = 0;
};
std::vector<Width> widths_of(const DisplayTable& shown) {
  std::vector<Width> out;
  for (std::size_t c = 0; c < shown.headers.size(); ++c) {
    const std::size_t head = longest_word(shown.headers[c]);
    std::size_t cells = 0, word = head;
    for (const auto& row : shown.rows) {
      cells = std::max(cells, display_width(row[c]));
      word = std::max(word, longest_word(row[c]));
    }
    const std::size_t least = shown.is_right_aligned[c] ? cells : std::min(cells, kLeastText);
    out.push_back({std::max(cells, display_width(shown.headers[c])),
                   std::max({least, head, shown.is_whole[c] ? word : 0}),
                   shown.is_right_aligned[c] ? std::max(cells, head) : word});
  }
  return out;
}

// True for "95 % from (ms)" before "to (ms)", which are shown together or not at all.
bool begins_interval(const std::vector<std::string>& headers, std::size_t c) {
  const auto words = [&](std::size_t at) { return headers[at].substr(0, headers[at].find(" (")); };
  if (c + 1 >= headers.size() || !words(c).ends_with("from")) return false;
  const std::string before = words(c).substr(0, words(c).size() - 4);
  return words(c + 1) == "to" || words(c + 1) == before + "to";
}

// Returns the widths of columns that fit; 0: the column is left out. The first column, keys and
// results get room before the others from the left: as much as they want, or the least that they
// can do with; room that remains widens texts.
std::vector<std::size_t> fitting_widths(const DisplayTable& shown, const TextView& view) {
  const std::vector<Width> wanted = widths_of(shown);
  const auto is_needed = [&](std::size_t c) { return c == 0 || shown.is_needed[c]; };
  std::vector<std::size_t> out;
  std::size_t all = 0, needed = 0;
  for (std::size_t c = 0; c < wanted.size(); ++c) {
    out.push_back(wanted[c].natural);
    all += wanted[c].natural + kGap;
    needed += is_needed(c) ? wanted[c].natural + kGap : 0;
  }
  std::size_t room = view.width + kGap;
  if (view.width == 0 || out.empty() || all <= room) return out;
  const bool is_narrow = needed > room;
  std::size_t at_least = 0;
  for (std::size_t c = 0; c < wanted.size(); ++c) {
    at_least += is_needed(c) ? wanted[c].least + kGap : 0;
  }
  const bool is_tight = at_least > room;  // texts of needed columns take more lines
  const auto first_width = [&](std::size_t c) {
    if (is_tight && is_needed(c)) return wanted[c].narrowest;
    if (shown.is_whole[c] && is_needed(c)) {
      const std::size_t usual = std::min(kWholeText, view.width / 2);
      return std::max(wanted[c].least, std::min(wanted[c].natural, usual));
    }
    const bool is_long = !shown.is_right_aligned[c] && wanted[c].natural > kLeastText + 8;
    if (is_narrow || is_long) return wanted[c].least;
    return is_needed(c) || shown.is_right_aligned[c] ? wanted[c].natural : wanted[c].least;
  };
  std::vector<std::size_t> order(out.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_partition(order, is_needed);
  std::ranges::fill(out, 0);
  for (std::size_t c : order) {
    if (c > 0 && begins_interval(shown.headers, c - 1)) continue;
    const std::size_t end = c + (begins_interval(shown.headers, c) ? 2 : 1);
    std::size_t taken = 0;
    for (std::size_t k = c; k < end; ++k) taken += first_width(k) + kGap;
    if (taken > room) continue;
    for (std::size_t k = c; k < end; ++k) out[k] = first_width(k);
    room -= taken;
  }
  for (std::size_t c = 0; c < out.size(); ++c) {
    if (out[c] == 0) continue;
    const std::size_t more = std::min(wanted[c].natural - out[c], room);
    out[c] += more;
    room -= more;
  }
  return out;
}

// --- lines --------------------------------------------------------------------------------------

// Writes a row, in as many lines as its longest text takes.
std::vector<std::string> lines_of_row(const std::vector<std::string>& cells,
                                      const DisplayTable& shown,
                                      const std::vector<std::size_t>& widths, const TextView& view,
                                      bool is_head = false) {
  const std::size_t of_cell =
      is_head ? kHeadLines
              : std::max(kCellLines, kLongCells / std::max<std::size_t>(1, shown.rows.size()));
  std::vector<std::vector<std::string>> parts(cells.size());
  std::size_t height = 1;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (widths[c] == 0) continue;
    parts[c] = shown.is_whole[c] && !is_head ? whole_lines(cells[c], widths[c])
                                             : cut_lines(cells[c], widths[c], of_cell);
    height = std::max(height, parts[c].size());
  }
  std::vector<std::string> out;
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
    out.push_back(line.substr(0, end));
  }
  return out;
}

std::string rule(const std::vector<std::size_t>& widths) {
  std::string out;
  for (std::size_t width : widths) {
    if (width > 0) out += (out.empty() ? "" : "  ") + std::string(width, '-');
  }
  return out;
}

void append(std::vector<std::string>& to, std::vector<std::string> lines) {
  std::ranges::move(lines, std::back_inserter(to));
}

// Returns the lines above the rows: the title, an empty line, the head and its rule.
std::vector<std::string> head_of(const DisplayTable& shown, const std::vector<std::size_t>& widths,
                                 const TextView& view) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; !shown.title.empty() && begin <= shown.title.size();) {
    const std::size_t end = std::min(shown.title.find('\n', begin), shown.title.size());
    append(out, in_lines(shown.title.substr(begin, end - begin), view.width));
    begin = end + 1;
  }
  if (!out.empty()) out.emplace_back();
  if (shown.rows.empty()) return out;
  append(out, lines_of_row(shown.headers, shown, widths, {}, true));
  out.push_back(rule(widths));
  return out;
}

// Appends whole items of several lines each, as far as they fit; returns how many do not.
std::size_t append_fitting(std::vector<std::string>& to,
                           std::vector<std::vector<std::string>> items, std::size_t most) {
  std::size_t done = 0;
  for (std::vector<std::string>& lines : items) {
    if (most > 0 && to.size() + lines.size() > most) break;
    append(to, std::move(lines));
    ++done;
  }
  return items.size() - done;
}

// True if a note is about a column. `columns`: headers, with their units.
bool is_about_any(const std::string& note, const std::vector<std::string>& columns) {
  return std::ranges::any_of(columns, [&](const std::string& header) {
    return note.starts_with(header.substr(0, header.find(" (")) + ": ");
  });
}

}  // namespace

LeftOut write_table(const Table& table, const TextView& view, std::ostream& out) {
  const DisplayTable shown = display(table);
  const std::vector<std::size_t> widths = fitting_widths(shown, view);
  LeftOut left;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (widths[c] == 0 && !shown.headers[c].empty()) left.columns.push_back(shown.headers[c]);
  }
  std::vector<std::vector<std::string>> rows, notes;
  std::size_t note_lines = 0;
  for (const auto& row : shown.rows) rows.push_back(lines_of_row(row, shown, widths, view));
  for (const std::string& note : shown.notes) {
    if (view.lines > 0 && is_about_any(note, left.columns)) {
      ++left.notes;
      continue;
    }
    notes.push_back(in_lines(note, view.width));
    for (std::string& line : notes.back()) line = coloured(line, tone_of_note(note), view);
    note_lines += notes.back().size();
  }
  std::vector<std::string> lines = head_of(shown, widths, view);
  // Rows leave some lines to the notes.
  const std::size_t kept = notes.empty() ? 0 : std::min(note_lines, kNoteLines) + 1;
  left.rows = append_fitting(lines, std::move(rows), view.lines > kept ? view.lines - kept : 0);
  if (!view.way_out.empty() && !left.columns.empty()) {
    lines.emplace_back();
    append(lines, in_lines(fmt::format("not shown for lack of width: {}{}",
                                       fmt::join(left.columns, ", "), view.way_out),
                           view.width));
  }
  if (!shown.rows.empty() && !notes.empty()) lines.emplace_back();
  const std::size_t most = view.lines == 0 ? 0 : std::min(view.lines, lines.size() + kNoteLines);
  left.notes += append_fitting(lines, std::move(notes), most);
  for (const std::string& line : lines) out << line << '\n';
  return left;
}

void write_text(const Document& document, std::ostream& out) {
  write_text(document, out, {});
}

void write_text(const Document& document, std::ostream& out, const TextView& view) {
  std::set<std::string> said;  // a legend that several tables share stands below the first
  bool first = true;
  for (Table table : document.tables) {
    if (is_silent(table)) continue;
    if (!first) out << '\n';
    first = false;
    std::erase_if(table.notes, [&](const std::string& note) { return !said.insert(note).second; });
    write_table(table, view, out);
  }
}

}  // namespace tracestep
