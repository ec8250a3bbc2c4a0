// GitHub tables, padded so that the source reads as a table too.
#include <algorithm>
#include <ostream>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (std::string_view("\\|*`<[").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

void write_line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                const std::vector<bool>& right, std::ostream& out) {
  out << '|';
  for (std::size_t c = 0; c < cells.size(); ++c) {
    out << ' ' << padded(cells[c], widths[c], right[c]) << " |";
  }
  out << '\n';
}

void write_markdown_table(const Table& table, std::ostream& out) {
  DisplayTable shown = display(table);
  std::vector<std::size_t> widths;
  std::vector<std::string> rule;
  for (std::size_t c = 0; c < shown.headers.size(); ++c) {
    shown.headers[c] = escaped(shown.headers[c]);
    std::size_t width = std::max<std::size_t>(3, display_width(shown.headers[c]));
    for (auto& row : shown.rows) {
      row[c] = escaped(row[c]);
      width = std::max(width, display_width(row[c]));
    }
    widths.push_back(width);
    const bool right = shown.is_right_aligned[c];
    rule.push_back(std::string(width - (right ? 1 : 0), '-') + (right ? ":" : ""));
  }
  if (!shown.title.empty()) out << "### " << escaped(shown.title) << "\n\n";
  if (!shown.rows.empty()) {
    write_line(shown.headers, widths, shown.is_right_aligned, out);
    write_line(rule, widths, shown.is_right_aligned, out);
  }
  for (const auto& row : shown.rows) write_line(row, widths, shown.is_right_aligned, out);
  for (const std::string& note : shown.notes) out << '\n' << escaped(note) << '\n';
}

}  // namespace

void write_markdown(const Document& document, std::ostream& out) {
  bool first = true;
  for (const Table& table : document.tables) {
    if (is_silent(table)) continue;
    if (!first) out << '\n';
    first = false;
    write_markdown_table(table, out);
  }
}

}  // namespace tracestep
