#include "lab/report/csv_reader.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxCells = std::size_t{1} << 20;

class Reader {
 public:
  Reader(std::string_view text, const std::string& name)
      : text_(text), bad_(find_invalid_utf8(text)), name_(name) {}

  std::vector<CsvRow> run() {
    for (; at_ < text_.size(); ++at_) step(text_[at_]);
    if (is_quoted_) {
      fail_input(name_, "line {}, column {}: the quote at its start is not closed", quote_line_,
                 row_.cells.size() + 1);
    }
    if (!cell_.empty() || !row_.cells.empty() || was_quoted_) end_row();
    return std::move(rows_);
  }

 private:
  void step(char c) {
    if (c == '\0' || at_ == bad_) {
      fail_input(name_, "line {}, column {}: {}", line_, row_.cells.size() + 1,
                 c == '\0' ? "a NUL byte" : "bytes that are no UTF-8");
    }
    if (c == '\n') ++line_;
    if (is_quoted_ && c == '"' && at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      cell_ += text_[++at_];
    } else if (c == '"') {
      is_quoted_ = !is_quoted_;
      was_quoted_ = true;
      quote_line_ = line_;
    } else if (is_quoted_ || (c != ',' && c != '\n' && c != '\r')) {
      cell_ += c;
    } else if (c == ',') {
      end_cell();
    } else if (c == '\n') {
      end_row();
    }
  }

  void end_cell() {
    if (++cells_ > kMaxCells) fail_input(name_, "more than {} cells", kMaxCells);
    row_.cells.push_back(std::move(cell_));
    cell_.clear();
  }

  void end_row() {
    const bool is_empty = cell_.empty() && row_.cells.empty() && !was_quoted_;
    if (!is_empty) {
      end_cell();
      row_.begins_table = is_after_empty_;
      rows_.push_back(std::move(row_));
    }
    is_after_empty_ = is_empty;
    was_quoted_ = false;
    row_ = {.cells = {}, .line = line_};
  }

  const std::string_view text_;
  const std::size_t bad_;  // the first byte that belongs to no character
  const std::string& name_;
  std::vector<CsvRow> rows_;
  CsvRow row_;
  std::string cell_;
  bool is_quoted_ = false, was_quoted_ = false, is_after_empty_ = true;
  std::size_t at_ = 0, line_ = 1, quote_line_ = 1, cells_ = 0;
};

// True if the text, without its first apostrophes, begins like a formula of some spreadsheet.
bool begins_as_formula(std::string_view text) {
  const std::size_t at = text.find_first_not_of('\'');
  return at != std::string_view::npos &&
         std::string_view("=+-@\t\r").find(text[at]) != std::string_view::npos;
}

}  // namespace

std::vector<CsvRow> parse_csv_rows(std::string_view text, const std::string& name) {
  return Reader(text, name).run();
}

std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& name) {
  std::vector<std::vector<std::string>> out;
  for (CsvRow& row : parse_csv_rows(text, name)) out.push_back(std::move(row.cells));
  return out;
}

std::string as_csv_text(std::string_view text) {
  const std::string shown = escaped_bytes(text);
  return (begins_as_formula(shown) ? "'" : "") + shown;
}

std::string from_csv_text(std::string_view cell) {
  const bool is_guarded = cell.starts_with('\'') && begins_as_formula(cell);
  return unescaped_bytes(cell.substr(is_guarded ? 1 : 0));
}

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
