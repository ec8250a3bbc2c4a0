// tracestep pivot: shows a stored result with the values of one key as columns, for example size
// against context.
#include <algorithm>
#include <memory>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "cli/command.h"
#include "cli/output.h"
#include "lab/compare/result_file.h"
#include "lab/measure/environment.h"
#include "lab/pages/pivot.h"
#include "lab/report/column_facts.h"
#include "lab/report/writers.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

struct PivotOptions {
  std::string file, table, across = "context", value;
  std::vector<std::string> down;
  OutputOptions output;
};

[[noreturn]] void fail_unknown(const char* flag, const char* what, const std::string& name,
                               const std::vector<std::string>& known) {
  throw Error(ErrorCode::kUsage, flag,
              fmt::format("there is no {} \"{}\"{}", what, name, did_you_mean(name, known)),
              fmt::format("there are {}", fmt::join(known, ", ")));
}

const Table& asked_table(const std::vector<Table>& tables, const PivotOptions& o) {
  if (o.table.empty()) return tables.front();
  const auto found = std::ranges::find(tables, o.table, &Table::name);
  if (found != tables.end()) return *found;
  std::vector<std::string> known;
  for (const Table& table : tables) known.push_back(table.name);
  fail_unknown("--table", "table", o.table, known);
}

// The column that a person means: the one of this name, else the one of this title or, of names
// that begin with it and "_", the shortest ("peak" is "peak_bytes").
std::string column_meant(const Table& table, const std::string& asked) {
  if (table.index_of(asked)) return asked;
  std::string out;
  for (const Column& column : table.columns) {
    const bool is_it = column.name.starts_with(asked + "_") || column.title == asked;
    if (is_it && (out.empty() || column.name.size() < out.size())) out = column.name;
  }
  return out.empty() ? asked : out;
}

// Says what all rows have in common, "mode step, precision fp32", without usual settings.
std::string common_keys(const Table& table, const pages::Pivot& pivot) {
  std::vector<std::string> out;
  if (table.rows.empty()) return {};
  const Json* const size = pages::cell_in(table, table.rows.front(), "size");
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    const bool is_named = column.name == pivot.across ||
                          std::ranges::find(pivot.down, column.name) != pivot.down.end();
    if (column.role != ColumnRole::kKey || column.data_only || is_named || varies(table, c))
      continue;
    const Json& value = table.rows.front()[c];
    const RunField* const field = find_field(column.name);
    const bool is_as_usual = field != nullptr && field->show != FieldShow::kPeople &&
                             is_usual(*field, value, size == nullptr ? Json() : *size);
    if (!value.is_null() && !is_as_usual) {
      out.push_back(column.name + " " + pages::words_of(value));
    }
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

// The keys that tell rows apart, without `across` and without columns that just name a row; "size"
// if there are none.
std::vector<std::string> varying_keys(const Table& table, const std::string& across) {
  std::vector<std::string> out;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    const bool is_name = column.kind == ColumnKind::kStructured || column.name == "label";
    if (column.role != ColumnRole::kKey || is_name || column.name == across) continue;
    if (varies(table, c)) out.push_back(column.name);
  }
  // If rows differ in nothing else, every size gets a row.
  if (out.empty() && table.index_of("size") && across != "size") out = {"size"};
  return out;
}

// The column to show if none is named: samples before bytes, bytes before other exact columns.
std::string usual_value(const Table& table) {
  const auto first = [&](auto is) {
    const auto found = std::ranges::find_if(table.columns, is);
    return found == table.columns.end() ? std::string() : found->name;
  };
  std::string out = first([](const Column& c) { return c.role == ColumnRole::kSamples; });
  if (out.empty()) {
    out = first([](const Column& c) {
      return c.role == ColumnRole::kExact && c.kind == ColumnKind::kBytes;
    });
  }
  return out.empty() ? first([](const Column& c) { return c.role == ColumnRole::kExact; }) : out;
}

int run_pivot(const PivotOptions& o, std::span<const std::string> arguments) {
  const NamedPath input[] = {{"FILE", o.file}}, output[] = {{"--output", o.output.path}};
  check_apart(input, output);
  probe_output(o.output);
  const Json document = result_document(read_text_file(o.file, "FILE", kMaxResultBytes), o.file);
  check_members(document, o.file);
  const std::vector<Table> tables = tables_of(document, o.file, "rows");
  if (tables.empty()) fail_input(o.file, "it is no result: there are no rows in it");
  const Table& table = asked_table(tables, o);
  std::vector<std::string> known;
  for (const Column& column : table.columns) known.push_back(column.name);
  pages::Pivot pivot{.down = o.down, .across = o.across, .value = o.value};
  if (pivot.down.empty()) pivot.down = varying_keys(table, o.across);
  if (pivot.value.empty()) pivot.value = usual_value(table);
  pivot.value = column_meant(table, pivot.value);
  const auto check = [&](const char* flag, const std::string& name) {
    if (!table.index_of(name)) fail_unknown(flag, "column", name, known);
  };
  check("--across", pivot.across);
  check("--value", pivot.value);
  for (const std::string& name : pivot.down) check("--down", name);
  const Column& value = table.columns[*table.index_of(pivot.value)];
  const bool is_samples = value.kind == ColumnKind::kReals;
  pivot.title = fmt::format("{}: {}, each {} in a column", table.name,
                            is_samples            ? "mean ± standard deviation"
                            : value.title.empty() ? value.name
                                                  : value.title,
                            pivot.across);
  if (const std::string common = common_keys(table, pivot); !common.empty()) {
    pivot.title += fmt::format(" ({})", common);
  }
  const Table* const only[] = {&table};
  Table out = pages::pivoted(pivot, only);
  if (out.rows.empty()) {
    throw Error(ErrorCode::kInput, o.file,
                fmt::format("no row of {} has {}", table.name, value.name),
                "--value names another column");
  }
  write_tables(o.output, "tracestep.pivot/1", capture_environment(arguments), {std::move(out)});
  return 0;
}

}  // namespace

Command pivot_command() {
  const auto options = std::make_shared<PivotOptions>();
  Command command{.name = "pivot"};
  OptionSet& set = command.options;
  set.positional("FILE", options->file, "a JSON result of any command, or study.json");
  set.group("What to show");
  set.text("--across", "NAME", options->across, "the column whose values become columns");
  set.value("--down", "NAME[,NAME]",
            "the columns that a row is for; by default all other keys in which rows differ",
            [options](const std::string& where, const std::string& text) {
              options->down = split_list(where, text);
            });
  set.text("--value", "NAME", options->value,
           "the column that is shown; by default the samples, or else the first bytes");
  set.text("--table", "NAME", options->table, "one of the result's tables; by default its first");
  add_output_options(set, options->output);
  runs_with(command, options, run_pivot);
  return command;
}

}  // namespace tracestep::cli
