// Reads a stored study, in JSON or in a page that carries it, back into sections.
#include <algorithm>
#include <map>

#include "lab/compare/result_file.h"
#include "lab/report/column_facts.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

Json document_of(std::string_view text, const std::string& name) {
  return text.starts_with("<!DOCTYPE") ? result_of_page(text, name) : result_document(text, name);
}

// Pages of earlier versions said the kinds of columns apart from the tables.
bool says_kinds(const Json& tables) {
  return std::ranges::all_of(tables.members(), [](const auto& table) {
    const Json* columns = table.second.find("columns");
    return columns != nullptr && std::ranges::all_of(columns->members(), [](const auto& column) {
             return column.second.find("kind") != nullptr;
           });
  });
}

}  // namespace

StoredStudy stored_study(std::string_view text, const std::string& name) {
  const Json document = document_of(text, name);
  const Json* tables = document.find("tables");
  const bool is_study = text_at(document, "schema") == kStudySchema && tables != nullptr;
  if (!is_study || tables->find("readings") == nullptr) {
    throw Error(ErrorCode::kInput, name, "it is no study as tracestep study stores one",
                "give study.json or study.html as tracestep study writes them");
  }
  if (!says_kinds(*tables)) {
    fail_input(name,
               "it is of a version that did not say what its columns are: only that one reads it");
  }
  std::map<std::string, Table> all;
  std::vector<std::string> order;
  for (const auto& [table, json] : tables->members()) {
    constexpr std::string_view kMadeAnew[] = {"subject", "summary", "answers", "readings"};
    if (std::ranges::find(kMadeAnew, table) != std::end(kMadeAnew)) continue;
    all[table] = table_of(table, json, name);
    order.push_back(table);
  }
  StoredStudy out{.sections = {}, .environment = document.at("environment")};
  for (const Json& row : tables->at("readings").at("rows").items()) {
    out.sections.push_back({.id = text_at(row, "id"),
                            .title = text_at(row, "title"),
                            .reading = text_at(row, "reading")});
    const Json* names = row.find("tables");
    if (names == nullptr) continue;
    for (const Json& table : names->items()) {
      if (auto found = all.extract(table.as_string())) {
        out.sections.back().tables.push_back(std::move(found.mapped()));
      }
    }
  }
  if (all.empty()) return out;
  out.sections.push_back({.id = "others", .title = "All tables"});
  for (const std::string& table : order) {
    if (all.contains(table)) out.sections.back().tables.push_back(std::move(all.at(table)));
  }
  return out;
}

}  // namespace tracestep
