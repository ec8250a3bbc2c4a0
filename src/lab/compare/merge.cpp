#include "lab/compare/merge.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "lab/compare/result_file.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/validity.h"
#include "lab/report/column_facts.h"

namespace tracestep {
namespace {

// True for a table whose verdicts are made again from all of its rows: that of `bench`, which the
// validity checker reads. Rows of other commands keep their verdicts.
bool is_judged(const Table& table) {
  return table.name == "bench" && std::ranges::any_of(table.columns, is_verdict_column);
}

void judge_again(Table& table, const Json& environment) {
  const std::vector<ResultRow> rows = rows_of(table, environment);
  const std::vector<std::string> old = validity_notes(rows);
  std::erase_if(table.notes,
                [&](const std::string& note) { return std::ranges::find(old, note) != old.end(); });
  add_verdicts(table, rows);
}

}  // namespace

std::string other_machine(const Json& first, const Json& other) {
  std::vector<std::string> out;
  const Json missing;
  for (std::string_view item : {"cpu", "gpu", "threads", "commit"}) {
    const Json *a = first.find(item), *b = other.find(item);
    if (a == nullptr) a = &missing;
    if (b == nullptr) b = &missing;
    if (!(*a == *b)) out.push_back(fmt::format("{} {} and {}", item, a->dump(), b->dump()));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

Document document_of(const Json& result, const std::string& where) {
  check_members(result, where);
  const std::string schema = text_at(result, "schema");
  if (schema.empty()) fail_input(where, "it is no JSON result: there is no schema");
  // Results of earlier versions do not name an only table.
  const std::size_t dot = schema.find('.'), end = schema.find('/');
  const std::string primary = schema.substr(dot + 1, end - dot - 1);
  Document out{schema, result.at("environment"), tables_of(result, where, primary)};
  for (Table& table : out.tables) {
    if (is_judged(table)) judge_again(table, out.environment);
    show_unusual(table);
  }
  return out;
}

}  // namespace tracestep
