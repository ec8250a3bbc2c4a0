// A study that was stored, as JSON or as the page that carries it, read back into sections.
#include <map>

#include "lab/compare/result_file.h"
#include "lab/report/column_facts.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

Column laid_out(const Json& layout, const Json* facts) {
  const std::string name = layout.at("name").as_string();
  if (facts != nullptr && facts->find("kind") != nullptr) return column_of(name, *facts);
  Column out = facts == nullptr ? Column{.name = name} : column_of(name, *facts);
  out.title = text_at(layout, "title");
  out.unit = text_at(layout, "unit");
  out.kind = kind_named(text_at(layout, "kind"));
  if (const Json* digits = layout.find("digits")) out.digits = static_cast<int>(digits->as_int());
  out.data_only = layout.find("hidden") != nullptr;
  const std::string timing = text_at(layout, "timing");
  if (!timing.empty()) out.timing = timing == "single" ? Timing::kSingle : Timing::kSampled;
  return out;
}

Table table_of(const std::string& name, const Json& json, const Json& layout,
               const std::string& where) {
  Table out{.name = name, .title = text_at(json, "title")};
  const Json& facts = json.at("columns");
  for (const Json& column : layout.at("columns").items()) {
    out.columns.push_back(laid_out(column, facts.find(column.at("name").as_string())));
  }
  add_rows(json, where, out);
  return out;
}

// The document; pages of earlier versions have the layout in a script of its own.
Json document_of(std::string_view text, const std::string& name) {
  if (!text.starts_with("<!DOCTYPE")) return Json::parse(text, name);
  Json out = Json::parse(json_of_page(text), name);
  constexpr std::string_view kLayout = "id=\"layout\">";
  const std::size_t begin = text.find(kLayout);
  if (begin != std::string_view::npos && out.find("layout") == nullptr) {
    const std::string_view rest = text.substr(begin + kLayout.size());
    out["layout"] = Json::parse(rest.substr(0, rest.find('<')), name);
  }
  return out;
}

}  // namespace

StoredStudy stored_study(std::string_view text, const std::string& name) {
  const Json document = document_of(text, name);
  const Json *tables = document.find("tables"), *layout = document.find("layout");
  const bool is_study = text_at(document, "schema") == kStudySchema && tables != nullptr;
  if (!is_study || layout == nullptr || tables->find("readings") == nullptr) {
    throw Error(ErrorCode::kInput, name, "it is no stored study with the layout of its tables",
                "give study.json or study.html as tracestep study writes them");
  }
  std::map<std::string, Table> all;
  std::vector<std::string> order;
  for (const auto& [table, json] : tables->members()) {
    if (table == "summary" || table == "answers" || table == "readings") continue;
    all[table] = table_of(table, json, layout->at("tables").at(table), name);
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
