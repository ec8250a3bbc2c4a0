#include "lab/report/csv_records.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace tracestep {

CsvRecord::CsvRecord(const std::vector<std::string>& names, const std::vector<std::string>& cells)
    : names_(names), cells_(cells) {
  TRACESTEP_CHECK(names.size() == cells.size(), "{} cells under {} columns; the first is \"{}\"",
                  cells.size(), names.size(), cells.front());
}

const std::string& CsvRecord::text(std::string_view column) const {
  const auto found = std::ranges::find(names_, column);
  TRACESTEP_CHECK(found != names_.end(), "no column \"{}\"", column);
  return cells_[static_cast<std::size_t>(found - names_.begin())];
}

bool CsvRecord::has(std::string_view cell) const {
  return std::ranges::find(cells_, cell) != cells_.end();
}

double CsvRecord::number(std::string_view column) const {
  const std::string& cell = text(column);
  double out = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), out);
  TRACESTEP_CHECK(error == std::errc() && end == cell.data() + cell.size(), "{} \"{}\"", column,
                  cell);
  return out;
}

double CsvRecord::number_or(std::string_view column, double otherwise) const {
  return text(column).empty() ? otherwise : number(column);
}

std::int64_t CsvRecord::whole_or(std::string_view column, std::int64_t otherwise) const {
  return static_cast<std::int64_t>(number_or(column, static_cast<double>(otherwise)));
}

}  // namespace tracestep
