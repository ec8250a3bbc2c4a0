#include "lab/compare/interleaved.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"
#include "lab/compare/result_file.h"
#include "lab/measure/processes.h"
#include "lab/report/column_facts.h"

namespace tracestep {

bool is_b_first(int pair, std::uint64_t seed) {
  return CounterRng(seed, "pairs").below(static_cast<std::uint64_t>(pair), 2) == 1;
}

namespace {

// Returns one table's rows merged over all documents; the first document's if the counts differ.
Json joined_rows(std::span<const Json> documents,
                 const std::function<const Json*(const Json& document)>& table_in) {
  std::vector<const Json*> tables;
  for (const Json& document : documents) tables.push_back(table_in(document));
  const Json& first = tables.front()->at("rows");
  const bool pair = std::ranges::all_of(tables, [&](const Json* table) {
    const Json* rows = table == nullptr ? nullptr : table->find("rows");
    return rows != nullptr && rows->size() == first.size();
  });
  if (!pair) return first;
  std::vector<Column> columns;
  if (const Json* facts = tables.front()->find("columns")) {
    for (const auto& [name, of_column] : facts->members()) {
      columns.push_back(column_of(name, of_column));
    }
  }
  Json out = Json::array();
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::vector<Json> of_processes;
    for (const Json* table : tables) of_processes.push_back(table->at("rows").items()[i]);
    out.push_back(merged_row(of_processes, columns));
  }
  return out;
}

}  // namespace

Json merged_result(std::span<const Json> documents, const std::string& where) {
  Json out = documents.front();
  for (const Json& document : documents) {
    check_members(document, where);
    if (document.at("schema") == out.at("schema") &&
        document.at("rows").size() == out.at("rows").size()) {
      continue;
    }
    throw Error(ErrorCode::kFailed, where, "two runs of the command measured different cells",
                "name a command that measures the same cells every time");
  }
  out["rows"] = joined_rows(documents, [](const Json& document) { return &document; });
  if (const Json* tables = documents.front().find("tables")) {
    for (const auto& [name, table] : tables->members()) {
      out["tables"][name]["rows"] = joined_rows(documents, [name = name](const Json& document) {
        const Json* all = document.find("tables");
        return all == nullptr ? nullptr : all->find(name);
      });
    }
  }
  return out;
}

}  // namespace tracestep
