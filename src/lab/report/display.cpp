// Cells formatted for human readers: 1.50 GiB, 128,625,408, yes, and "-" where there is nothing.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/units.h"
#include "base/utf8.h"
#include "lab/report/digits.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

constexpr const char* kEmpty = "-";
// Writes a number with `digits` decimals; one other than zero is never shown as zero: "< 0.001".
std::string real(double value, int digits) {
  if (!std::isfinite(value)) return kEmpty;
  if (digits == kTwoDigits) return two_digits(value);
  if (digits < 0) {
    constexpr double kLong = 1e7;  // up to which digits read better than an exponent
    const bool is_long = std::abs(value) >= 9999.5 && std::abs(value) < kLong;
    return is_long ? grouped(std::llround(value)) : fmt::format("{:.4g}", value);
  }
  constexpr double kWhole = 1e15;  // up to which a double has every whole number
  if (digits == 0 && std::abs(value) >= 0.5 && std::abs(value) < kWhole) {
    return grouped(std::llround(value));
  }
  const double least = std::pow(10.0, -digits);
  if (value == 0.0 || std::abs(value) >= least / 2) return fmt::format("{:.{}f}", value, digits);
  return fmt::format("{} {:.{}f}", value > 0 ? '<' : '>', value > 0 ? least : -least, digits);
}

// Makes a text one line without bytes that move a terminal's cursor, which kernels' names may have.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return escaped(text);
}

// Makes each line of a title, which may have several, one without bytes that move a cursor.
std::string each_line(const std::string& text) {
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out += (begin == 0 ? "" : "\n") + one_line(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string text_of(const std::string& cell, const Column& column) {
  const auto word =
      std::ranges::find(column.words, cell, &std::pair<std::string, std::string>::first);
  return one_line(word == column.words.end() ? cell : word->second);
}

std::string display_cell(const Json& cell, const Column& column) {
  if (cell.is_null()) return kEmpty;
  switch (column.kind) {
    case ColumnKind::kText: return text_of(cell.as_string(), column);
    case ColumnKind::kInt: return grouped(cell.as_int());
    case ColumnKind::kReal: return real(cell.as_double(), column.digits);
    case ColumnKind::kBytes: return format_bytes(cell.as_int());
    case ColumnKind::kBool: return cell.as_bool() ? "yes" : "no";
    case ColumnKind::kReals:
    case ColumnKind::kStructured: break;
  }
  return kEmpty;
}

bool has_ms(const Column& column) {
  return column.kind == ColumnKind::kReal && column.unit == "ms";
}

// True if the longest time of each row is at least a second: all times of the table are then in
// seconds, as in sentences.
bool is_of_seconds(const Table& table) {
  constexpr double kSecond = 1000.0;
  bool has_times = false;
  for (const auto& row : table.rows) {
    double longest = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (!has_ms(table.columns[c]) || row[c].is_null()) continue;
      has_times = true;
      longest = std::max(longest, row[c].as_double());
      if (!(longest < kSecond)) break;
    }
    if (longest > 0 && longest < kSecond) return false;
  }
  return has_times;
}

Json in_seconds(const Json& cell) {
  return cell.is_null() ? cell : Json(cell.as_double() / 1000.0);
}

std::string header(const Column& column) {
  const std::string& title = column.title.empty() ? column.name : column.title;
  // Bytes carry their unit in every cell.
  if (column.unit.empty() || column.kind == ColumnKind::kBytes) return title;
  return fmt::format("{} ({})", title, column.unit);
}

}  // namespace

bool varies(const Table& table, std::size_t column) {
  return std::ranges::any_of(table.rows, [&](const std::vector<Json>& row) {
    return !(row[column] == table.rows.front()[column]);
  });
}

bool is_shown(const Table& table, std::size_t column) {
  const Column& c = table.columns[column];
  const bool is_list = c.kind == ColumnKind::kReals || c.kind == ColumnKind::kStructured;
  if (is_list) return false;
  return c.is_result || (!c.data_only && (!c.if_varies || varies(table, column)));
}

DisplayTable display(const Table& table) {
  DisplayTable out;
  out.title = each_line(table.title);
  for (const std::string& note : table.notes) out.notes.push_back(one_line(note));
  out.rows.resize(table.rows.size());
  const bool is_long = is_of_seconds(table);
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (!is_shown(table, c)) continue;
    Column column = table.columns[c];
    const bool in_s = is_long && has_ms(column);
    if (in_s) column.unit = "s";
    out.headers.push_back(one_line(header(column)));
    out.is_needed.push_back(column.is_result || column.role == ColumnRole::kKey ||
                            column.name == "status");
    out.is_whole.push_back(column.is_whole);
    out.is_right_aligned.push_back(column.kind != ColumnKind::kText &&
                                   column.kind != ColumnKind::kBool);
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const Json& cell = table.rows[r][c];
      out.rows[r].push_back(display_cell(in_s ? in_seconds(cell) : cell, column));
    }
  }
  return out;
}

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

std::string padded(const std::string& text, std::size_t width, bool is_right_aligned) {
  const std::size_t used = display_width(text);
  const std::string fill(width > used ? width - used : 0, ' ');
  return is_right_aligned ? fill + text : text + fill;
}

}  // namespace tracestep
