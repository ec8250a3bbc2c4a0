// Comma-separated values as RFC 4180 has them: raw values, quotes doubled, lines end in CR LF.
// Lists and objects are JSON text in one field.
#include <ostream>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string raw(const Json& cell) {
  if (cell.is_null()) return "";
  if (cell.is_string()) return cell.as_string();
  const std::string text = cell.dump();
  return text == "null" ? "" : text;  // NaN
}

void write_table(const Table& table, std::ostream& out) {
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    out << (c > 0 ? "," : "") << field(table.columns[c].name);
  }
  out << "\r\n";
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out << (c > 0 ? "," : "") << field(raw(row[c]));
    out << "\r\n";
  }
}

}  // namespace

void write_csv(const Document& document, std::ostream& out) {
  bool first = true;
  for (const Table& table : document.tables) {
    if (!first) out << "\r\n";
    first = false;
    write_table(table, out);
  }
}

}  // namespace tracestep
