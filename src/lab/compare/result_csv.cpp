
#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/input_file.h"
#include "lab/compare/compare.h"
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

}  // namespace

std::vector<ResultRow> read_result_csv(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto rows = parse_csv(read_text_file(path, name, kMaxResultBytes), name);
  static constexpr std::array<std::string_view, 6> kNeeded = {"size",      "context", "mode",
                                                              "precision", "status",  "median_ms"};
  for (std::string_view column : kNeeded) {
    if (!rows.empty() && std::ranges::find(rows[0], column) != rows[0].end()) continue;
    throw Error(ErrorCode::kInput, name, fmt::format("there is no column \"{}\"", column),
                "give a result of bench as JSON or CSV, or one of attention as JSON");
  }
  for (const std::string& column : rows[0]) {
    if (column.size() > kMaxColumnName) {
      fail_input(name, "a column has a name of {} bytes", column.size());
    }
  }
  if (rows.size() > kMaxResultRows) {
    fail_input(name, "{} rows; at most {} are read", rows.size(), kMaxResultRows);
  }
  std::vector<ResultRow> out;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    Json::Object cells;
    for (std::size_t c = 0; c < rows[0].size() && c < rows[r].size(); ++c) {
      const bool is_list = rows[0][c] == "samples_ms" || rows[0][c] == "warmup_ms";
      cells.emplace_back(rows[0][c], is_list ? list_of(rows[r][c]) : cell_of(rows[r][c]));
    }
    out.emplace_back(Json(std::move(cells)));
  }
  return out;
}

}  // namespace tracestep
