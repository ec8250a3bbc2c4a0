// Files of comma-separated values that are put into the program when it is built, as structs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/csv_reader.h"

namespace tracestep {

// One row of such a file, by the names of its columns. The files are ours: a mistake in one is a
// bug, and CHECKed.
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

template <class Out>
std::vector<Out> read_records(std::string_view csv, Out (*read)(const CsvRecord& record)) {
  const std::vector<std::vector<std::string>> rows = parse_csv(csv, "data of the program");
  std::vector<Out> out;
  for (std::size_t i = 1; i < rows.size(); ++i) out.push_back(read(CsvRecord(rows[0], rows[i])));
  return out;
}

}  // namespace tracestep
