
#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/input_file.h"
#include "lab/compare/result_file.h"
#include "lab/report/csv_reader.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxColumnName = 100;

Json cell_of(const std::string& text) {
  if (text.empty()) return {};
  const char* const end = text.data() + text.size();
  const auto reads = [&](auto& value) {
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end;
  };
  std::int64_t whole = 0;
  double real = 0;
  if (reads(whole)) return whole;
  if (reads(real)) return real;
  return text;
}

// A list, as the CSV writer has it ("[1,2]") or with spaces between the numbers.
Json list_of(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '[' || c == ']' || c == ','; }, ' ');
  std::istringstream in(text);
  Json out = Json::array();
  for (double value = 0; in >> value;) out.push_back(value);
  return out;
}

// The tables of a file: an empty line ends one.
std::vector<std::string_view> tables_in(std::string_view text) {
  std::vector<std::string_view> out;
  bool is_quoted = false, is_empty_line = true;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') is_quoted = !is_quoted;
    if (text[i] == '\n' && !is_quoted) {
      if (is_empty_line) {
        out.push_back(text.substr(begin, i - begin));
        begin = i + 1;
      }
      is_empty_line = true;
    } else if (text[i] != '\r') {
      is_empty_line = false;
    }
  }
  out.push_back(text.substr(begin));
  return out;
}

bool is_list(std::string_view column) {
  return column.ends_with("samples_ms") || column.ends_with("warmup_ms") ||
         column.ends_with("process_samples");
}

// A table with the names of its columns in the first row.
Json rows_of(const std::vector<std::vector<std::string>>& cells, const std::string& name) {
  for (const std::string& column : cells[0]) {
    if (column.size() > kMaxColumnName) {
      fail_input(name, "a column has a name of {} bytes", column.size());
    }
  }
  Json out = Json::array();
  for (std::size_t r = 1; r < cells.size(); ++r) {
    Json::Object row;
    for (std::size_t c = 0; c < cells[0].size() && c < cells[r].size(); ++c) {
      const std::string& column = cells[0][c];
      row.emplace_back(column, is_list(column) ? list_of(cells[r][c]) : cell_of(cells[r][c]));
    }
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace

ResultFile read_result_csv(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  ResultFile out{name, "", Json::object(), {}};
  const auto machine = std::make_shared<const Json>(out.environment);
  const std::string text = read_text_file(path, name, kMaxResultBytes);
  for (std::string_view part : tables_in(text)) {
    const auto cells = parse_csv(part, name);
    if (cells.empty()) continue;
    const Json rows = rows_of(cells, name);
    if (rows.size() > 0) add_table("", rows, machine, out);
  }
  if (!out.tables.empty()) return out;
  throw Error(ErrorCode::kInput, name, "its columns are those of no table that can be compared",
              "give a result of bench, attention, memory, profile or study");
}

}  // namespace tracestep
