// Aligned columns for a terminal.
#include <algorithm>
#include <ostream>

#include "base/utf8.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

void write_line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                const std::vector<bool>& right, std::ostream& out) {
  std::string line;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (c > 0) line += "  ";
    line += padded(cells[c], widths[c], right[c]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out << line << '\n';
}

void write_table(const Table& table, std::ostream& out) {
  const DisplayTable shown = display(table);
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < shown.headers.size(); ++c) {
    std::size_t width = display_width(shown.headers[c]);
    for (const auto& row : shown.rows) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  if (!table.title.empty()) out << table.title << "\n\n";
  write_line(shown.headers, widths, shown.is_right_aligned, out);
  std::vector<std::string> rule;
  rule.reserve(widths.size());
  for (std::size_t width : widths) rule.emplace_back(width, '-');
  write_line(rule, widths, shown.is_right_aligned, out);
  for (const auto& row : shown.rows) write_line(row, widths, shown.is_right_aligned, out);
  if (!table.notes.empty()) out << '\n';
  for (const std::string& note : table.notes) out << escaped(note) << '\n';
}

}  // namespace

void write_text(const Document& document, std::ostream& out) {
  bool first = true;
  for (const Table& table : document.tables) {
    if (!first) out << '\n';
    first = false;
    write_table(table, out);
  }
}

}  // namespace tracestep
