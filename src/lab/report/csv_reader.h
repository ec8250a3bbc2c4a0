// Reads comma-separated values, whose cells stay text, and turns the CSV files that are compiled
// into the program into structs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace tracestep {

struct CsvRow {
  std::vector<std::string> cells;
  std::size_t line = 1;  // The line of the file in which the row begins.
  // True for the first row of the file and for a row after an empty line.
  bool begins_table = false;
};

// Reads rows of cells, the row of column names first; skips empty lines. RFC 4180: cells in quotes
// may hold commas, line ends and doubled quotes. Throws Error{kInput} naming `name`, line and
// column for bytes that are no text, for a quote that nothing closes, and beyond 2^20 cells.
std::vector<CsvRow> parse_csv_rows(std::string_view text, const std::string& name);
// Reads a text as parse_csv_rows() does, and returns each row's cells.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name);

// Escapes a text as the CSV writer does (escaped_bytes() of base/utf8.h). An apostrophe is added at
// the start where a spreadsheet would read a formula, and where the text begins with an apostrophe.
std::string as_csv_text(std::string_view text);
// Returns the text from which as_csv_text() made the cell.
std::string from_csv_text(std::string_view cell);

// A row of a CSV file that is compiled into the program; cells are found by column name. A missing
// column or a wrong number is a bug of ours, so it fails a CHECK.
class CsvRecord {
 public:
  CsvRecord(const std::vector<std::string>& names, const std::vector<std::string>& cells);

  const std::string& text(std::string_view column) const;
  bool has(std::string_view cell) const;  // True if any column has this cell.
  double number(std::string_view column) const;
  // Read a cell that may be empty; an empty cell gives `otherwise`.
  double number_or(std::string_view column, double otherwise) const;
  std::int64_t whole_or(std::string_view column, std::int64_t otherwise) const;

 private:
  const std::vector<std::string>& names_;
  const std::vector<std::string>& cells_;
};

inline constexpr std::string_view kNeeded = "needed";

// Connects a column to the member of T that its cells fill. An empty cell of a number leaves the
// member's default, unless `how` is kNeeded. A bool member is true if the cell equals the word
// `how`.
template <class T>
struct CsvField {
  std::string_view column;
  std::variant<std::string T::*, int T::*, std::int64_t T::*, double T::*, bool T::*> member;
  std::string_view how = {};
};

template <class T>
T filled(const CsvRecord& record, std::span<const CsvField<T>> fields) {
  T out;
  for (const CsvField<T>& field : fields) {
    const std::string_view column = field.column;
    const auto fill = [&]<class Value>(Value T::*member) {
      Value& value = out.*member;
      if constexpr (std::is_same_v<Value, std::string>) {
        value = record.text(column);
      } else if constexpr (std::is_same_v<Value, bool>) {
        value = record.text(column) == field.how;
      } else if constexpr (std::is_same_v<Value, double>) {
        value = field.how == kNeeded ? record.number(column) : record.number_or(column, value);
      } else {
        value = field.how == kNeeded ? static_cast<Value>(record.number(column))
                                     : static_cast<Value>(record.whole_or(column, value));
      }
    };
    std::visit(fill, field.member);
  }
  return out;
}

template <class Out>
std::vector<Out> read_records(std::string_view csv, Out (*read)(const CsvRecord& record)) {
  const std::vector<std::vector<std::string>> rows = parse_csv(csv, "data of the program");
  std::vector<Out> out;
  for (std::size_t i = 1; i < rows.size(); ++i) out.push_back(read(CsvRecord(rows[0], rows[i])));
  return out;
}

}  // namespace tracestep
