// Comma-separated values as RFC 4180 has them: raw values, quotes doubled, lines end in CR LF.
// Lists and objects are JSON text in one field. Texts hold nothing that a terminal or a spreadsheet
// would act on; as_csv_text() says how.
#include <ostream>

#include "lab/report/csv_reader.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string field(const Json& cell) {
  if (cell.is_null()) return "";
  if (cell.is_string()) return quoted(as_csv_text(cell.as_string()));
  const std::string text = cell.dump();
  return text == "null" ? "" : quoted(text);  // NaN
}

void write_csv_table(const Table& table, std::ostream& out) {
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    out << (c > 0 ? "," : "") << quoted(as_csv_text(table.columns[c].name));
  }
  out << "\r\n";
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out << (c > 0 ? "," : "") << field(row[c]);
    if (row.size() == 1 && field(row[0]).empty()) out << "\"\"";  // an empty line ends the table
    out << "\r\n";
  }
}

}  // namespace

void write_csv(const Document& document, std::ostream& out) {
  bool first = true;
  for (const Table& table : document.tables) {
    if (!first) out << "\r\n";
    first = false;
    write_csv_table(table, out);
  }
}

}  // namespace tracestep
