// Typst figures. Cells are string literals, not markup: nothing in them can be taken for syntax.
#include <ostream>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

std::string literal(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

void write_line(const std::vector<std::string>& cells, std::ostream& out) {
  out << "   ";
  for (const std::string& cell : cells) out << ' ' << literal(cell) << ',';
  out << '\n';
}

void write_notes(const DisplayTable& table, std::ostream& out) {
  for (const std::string& note : table.notes) out << "#par(" << literal(note) << ")\n";
}

void write_typst_table(const Table& table, std::ostream& out) {
  const DisplayTable shown = display(table);
  if (shown.rows.empty()) return write_notes(shown, out);
  out << "#figure(\n  table(\n    columns: " << shown.headers.size() << ",\n    align: (";
  for (bool right : shown.is_right_aligned) out << (right ? "right, " : "left, ");
  out << "),\n    table.header(";
  for (const std::string& header : shown.headers) out << literal(header) << ", ";
  out << "),\n";
  for (const auto& row : shown.rows) write_line(row, out);
  out << "  ),\n";
  if (!shown.title.empty()) out << "  caption: " << literal(shown.title) << ",\n";
  out << ")\n";
  write_notes(shown, out);
}

}  // namespace

void write_typst(const Document& document, std::ostream& out) {
  for (const Table& table : document.tables) {
    if (!is_silent(table)) write_typst_table(table, out);
  }
}

}  // namespace tracestep
