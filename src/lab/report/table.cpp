#include "lab/report/table.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/output_file.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "base/units.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

struct NamedFormat {
  const char* name;
  const char* ending;
  Format format;
  void (*write)(const Document&, std::ostream&);
  const char *comment = nullptr, *comment_end = "";  // the text of a line that readers skip
};

constexpr std::array<NamedFormat, 6> kFormats = {
    {{"text", ".txt", Format::kText, write_text, "# "},
     {"markdown", ".md", Format::kMarkdown, write_markdown, "<!-- ", " -->"},
     {"csv", ".csv", Format::kCsv, write_csv},
     {"json", ".json", Format::kJson, write_json},
     {"latex", ".tex", Format::kLatex, write_latex, "% "},
     {"typst", ".typ", Format::kTypst, write_typst, "// "}}};

// Turns a name into words: "GPU memory" for "gpu_memory_bytes", whose value shows its unit.
std::string words_of(std::string_view name) {
  constexpr std::string_view kBytes = "_bytes";
  constexpr std::array<std::string_view, 6> kInitials = {"cpu",  "gpu",  "cuda",
                                                         "simd", "gemm", "utc"};
  if (name.ends_with(kBytes)) name.remove_suffix(kBytes.size());
  std::string out;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('_'), name.size());
    std::string word(name.substr(0, end));
    if (std::ranges::find(kInitials, word) != kInitials.end()) {
      std::ranges::transform(word, word.begin(), [](char c) { return static_cast<char>(c - 32); });
    }
    out += (out.empty() ? "" : " ") + word;
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return out;
}

void write_stdout(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) end_by_broken_pipe();
  throw Error(ErrorCode::kOutput, "stdout",
              fmt::format("the result cannot be written: {}", std::strerror(errno)));
}

}  // namespace

std::optional<std::size_t> Table::index_of(std::string_view column) const {
  const auto found = std::ranges::find(columns, column, &Column::name);
  if (found == columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - columns.begin());
}

bool fits(const Json& cell, ColumnKind kind) {
  if (cell.is_null()) return true;
  switch (kind) {
    case ColumnKind::kText: return cell.is_string();
    case ColumnKind::kInt:
    case ColumnKind::kBytes: return cell.is_int();
    case ColumnKind::kReal: return cell.is_number();
    case ColumnKind::kBool: return cell.is_bool();
    case ColumnKind::kReals:
      return cell.is_array() &&
             std::ranges::all_of(cell.items(), [](const Json& x) { return x.is_number(); });
    case ColumnKind::kStructured: return cell.is_object() || cell.is_array();
  }
  return false;
}

void Table::add_row(std::vector<Json> cells) {
  TRACESTEP_CHECK(cells.size() == columns.size(), "table {}: {} cells for {} columns", name,
                  cells.size(), columns.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    TRACESTEP_CHECK(fits(cells[i], columns[i].kind), "table {}, column {}: {} is of another kind",
                    name, columns[i].name, cells[i].dump());
  }
  rows.push_back(std::move(cells));
}

void Table::add_cells(std::initializer_list<std::pair<std::string_view, Json>> cells) {
  std::vector<Json> row(columns.size());
  for (const auto& [column, cell] : cells) {
    const std::optional<std::size_t> index = index_of(column);
    TRACESTEP_CHECK(index.has_value(), "table {} has no column {}", name, column);
    row[*index] = cell;
  }
  add_row(std::move(row));
}

Timing timing_of(const Column& column) {
  constexpr std::string_view kUnits[] = {"ms", "µs", "s", "GFLOP/s", "TFLOP/s", "GB/s", "J"};
  const bool is_timed = std::ranges::find(kUnits, column.unit) != std::end(kUnits) ||
                        (column.kind == ColumnKind::kReals && column.name.ends_with("_ms"));
  if (column.timing != Timing::kNone) return column.timing;
  return is_timed ? Timing::kSampled : Timing::kNone;
}

Table key_value_table(std::string name, std::string title, const Json& object) {
  Table table{.name = std::move(name),
              .title = std::move(title),
              .columns = {{.name = "item"}, {.name = "value"}}};
  for (const auto& [key, value] : object.members()) {
    table.columns[0].words.emplace_back(key, words_of(key));
    if (!key.ends_with("_bytes") || !value.is_int()) continue;
    table.columns[1].words.emplace_back(value.dump(), format_bytes(value.as_int()));
  }
  for (const auto& [key, value] : object.members()) {
    if (value.is_object() || value.is_null()) continue;
    if (value.is_string()) {
      table.add_row({key, value});
    } else if (value.is_array()) {
      std::string list;
      for (const Json& item : value.items()) {
        list += (list.empty() ? "" : " ") + (item.is_string() ? item.as_string() : item.dump());
      }
      table.add_row({key, list});
    } else {
      table.add_row({key, value.dump()});
    }
  }
  return table;
}

Format parse_format(const About& where, std::string_view name) {
  std::vector<std::string> names;
  for (const NamedFormat& known : kFormats) {
    if (name == known.name) return known.format;
    names.emplace_back(known.name);
  }
  throw Error(ErrorCode::kUsage, where,
              fmt::format("unknown format \"{}\"{}", name, did_you_mean(name, names)),
              fmt::format("one of {}", kFormatNames));
}

std::optional<Format> format_of_ending(std::string_view ending) {
  for (const NamedFormat& known : kFormats) {
    if (ending == known.ending) return known.format;
  }
  return std::nullopt;
}

std::string_view name_of(Format format) {
  return std::ranges::find(kFormats, format, &NamedFormat::format)->name;
}

void write(const Document& document, Format format, std::ostream& out) {
  for (const NamedFormat& known : kFormats) {
    if (known.format == format) known.write(document, out);
  }
}

std::string to_string(const Document& document, Format format) {
  std::ostringstream out;
  write(document, format, out);
  return out.str();
}

std::string marked(std::string text, Format format, std::string_view schema) {
  for (const NamedFormat& known : kFormats) {
    if (known.format != format || known.comment == nullptr) continue;
    return fmt::format("{}{}{}\n\n", known.comment, schema, known.comment_end) + text;
  }
  // Puts the first name of a CSV head in quotes; in JSON the schema is the mark.
  if (format != Format::kCsv || text.empty() || text.starts_with('"')) return text;
  text.insert(text.find_first_of(",\r"), "\"");
  return '"' + text;
}

void write_output(const Document& document, Format format, const std::string& path) {
  std::string text = to_string(document, format);
  if (path.empty()) {
    write_stdout(text);
  } else {
    write_file(path, marked(std::move(text), format, document.schema));
  }
}

}  // namespace tracestep
