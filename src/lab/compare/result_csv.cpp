// Reads results in CSV as the JSON documents that hold the same.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/input_file.h"
#include "lab/compare/result_file.h"
#include "lab/report/csv_reader.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxColumnName = 100;

// The position of a cell in its file, for messages.
struct Place {
  const std::string& file;
  std::size_t line, column;
  std::string_view title = {};

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_input(file, "line {}, column {}{}: {}", line, column,
               title.empty() ? "" : fmt::format(" ({})", title),
               fmt::format(format, std::forward<Args>(args)...));
  }
};

// Reads a number; nullopt: it is none. Fails for a number that no result of ours can hold.
std::optional<Json> number_in(std::string_view text, const Place& place) {
  const char* const end = text.data() + text.size();
  bool is_beyond = false;
  const auto reads = [&](auto& value) {
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    is_beyond = is_beyond || (stop == end && error == std::errc::result_out_of_range);
    return error == std::errc() && stop == end;
  };
  std::int64_t whole = 0;
  double real = 0;
  if (reads(whole)) return whole;
  const bool is_number = reads(real);
  if (is_beyond || (is_number && !std::isfinite(real))) {
    place.fail("{} is no number that a result has", text);
  }
  return is_number ? std::optional<Json>(real) : std::nullopt;
}

// Reads a cell: empty, a number, an object, which the CSV writer has as JSON, or else a text.
Json cell_of(const std::string& text, const Place& place) {
  if (text.empty()) return {};
  if (text.starts_with('{')) {
    try {
      return Json::parse(text, "");
    } catch (const Error&) {
      return from_csv_text(text);
    }
  }
  if (const auto number = number_in(text, place)) return *number;
  return from_csv_text(text);
}

// Reads a list of numbers, as the CSV writer has it ("[1,2]", null for what is no number) or with
// spaces between the numbers.
Json list_of(std::string text, const Place& place) {
  std::ranges::replace_if(
      text, [](char c) { return c == '[' || c == ']' || c == ','; }, ' ');
  std::istringstream in(text);
  Json out = Json::array();
  for (std::string word; in >> word;) {
    const auto number = word == "null" ? std::optional<Json>(Json()) : number_in(word, place);
    if (!number) place.fail("{} is no number", word);
    out.push_back(*number);
  }
  return out;
}

bool is_list(std::string_view column) {
  return column.ends_with("samples_ms") || column.ends_with("warmup_ms") ||
         column.ends_with("process_samples") || column.ends_with("visit_samples");
}

std::vector<std::string> names_in(const CsvRow& head, const std::string& file) {
  std::vector<std::string> out;
  for (const std::string& cell : head.cells) {
    const std::string name = from_csv_text(cell);
    const Place place{file, head.line, out.size() + 1};
    if (name.size() > kMaxColumnName) place.fail("its name has {} bytes", name.size());
    const auto first = std::ranges::find(out, name);
    if (first != out.end()) {
      place.fail("\"{}\" is the name of column {} too", name, first - out.begin() + 1);
    }
    out.push_back(name);
  }
  return out;
}

// Reads a table's rows as objects; the first row has the names of its columns.
Json rows_of(std::span<const CsvRow> rows, const std::string& file) {
  const std::vector<std::string> names = names_in(rows.front(), file);
  Json out = Json::array();
  for (const CsvRow& row : rows.subspan(1)) {
    const std::size_t cells = row.cells.size();
    if (cells != names.size()) {
      Place{file, row.line, std::min(cells, names.size()) + 1}.fail(
          "the row has {} cells and its table {} columns", cells, names.size());
    }
    Json::Object object;
    for (std::size_t c = 0; c < cells; ++c) {
      const Place place{file, row.line, c + 1, names[c]};
      object.emplace_back(names[c], is_list(names[c]) ? list_of(row.cells[c], place)
                                                      : cell_of(row.cells[c], place));
    }
    out.push_back(std::move(object));
  }
  return out;
}

}  // namespace

ResultFile read_result_csv(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  ResultFile out{name, "", Json::object(), {}};
  const auto machine = std::make_shared<const Json>(out.environment);
  const std::string text = read_text_file(path, name, kMaxResultBytes);
  const std::vector<CsvRow> all = parse_csv_rows(text, name);
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end = std::find_if(begin + 1, all.end(), std::mem_fn(&CsvRow::begins_table));
    const Json rows = rows_of(std::span(begin, end), name);
    if (rows.size() > 0) add_table("", Json::Object{{"rows", rows}}, machine, out);
    begin = end;
  }
  if (out.tables.empty()) fail_without_tables(out);
  return out;
}

}  // namespace tracestep
