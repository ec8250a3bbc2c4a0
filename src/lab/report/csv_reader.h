// A reader of comma-separated values; cells stay text. And files that are put into the program when
// it is built, as structs.
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
  std::size_t line = 1;       // in which it begins
  bool begins_table = false;  // the first one, and those behind an empty line
};

// Rows of cells, the row of column names first; empty lines are skipped. RFC 4180: cells in quotes
// may hold commas, line ends and doubled quotes. Error{kInput} naming `name`, and line and column
// of what is wrong: bytes that are no text, a quote that nothing closes; also beyond 2^20 cells.
std::vector<CsvRow> parse_csv_rows(std::string_view text, const std::string& name);
// The cells alone.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name);

// A text as the writer puts it into a cell: escaped_bytes() of base/utf8.h, and behind an
// apostrophe where a spreadsheet would take it for a formula; one that is there already gets
// another.
std::string as_csv_text(std::string_view text);
// The inverse.
std::string from_csv_text(std::string_view cell);

// A row of such a file, by the names of its columns. The files belong to the source: a mistake in
// one is a bug, and CHECKed.
class CsvRecord {
 public:
  CsvRecord(const std::vector<std::string>& names, const std::vector<std::string>& cells);

  const std::string& text(std::string_view column) const;
  bool has(std::string_view cell) const;  // in any column
  double number(std::string_view column) const;
  // These read a cell that may be empty.
  double number_or(std::string_view column, double otherwise) const;
  std::int64_t whole_or(std::string_view column, std::int64_t otherwise) const;

 private:
  const std::vector<std::string>& names_;
  const std::vector<std::string>& cells_;
};

inline constexpr std::string_view kNeeded = "needed";

// A column and the member of T that its cells fill. An empty number leaves what T begins with,
// unless `how` is kNeeded; a bool is whether the cell is the word `how`.
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
