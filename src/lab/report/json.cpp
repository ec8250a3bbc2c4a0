// Raw values as objects, one per row, with the meaning, unit and role of each column beside them.
#include <ostream>

#include "lab/report/column_facts.h"
#include "lab/report/writers.h"

namespace tracestep {
namespace {

Json rows_of(const Table& table) {
  Json::Array rows;
  rows.reserve(table.rows.size());
  for (const auto& cells : table.rows) {
    Json::Object row;
    row.reserve(cells.size());
    for (std::size_t c = 0; c < cells.size(); ++c) {
      row.emplace_back(table.columns[c].name, cells[c]);
    }
    rows.emplace_back(std::move(row));
  }
  return rows;
}

Json columns_of(const Table& table) {
  Json columns = Json::object();
  for (const Column& column : table.columns) columns[column.name] = facts_of(column);
  return columns;
}

void add_table(const Table& table, Json& out) {
  out["columns"] = columns_of(table);
  out["rows"] = rows_of(table);
  if (table.notes.empty()) return;
  out["notes"] = Json::array();
  for (const std::string& note : table.notes) out["notes"].push_back(note);
}

}  // namespace

Json to_json(const Document& document) {
  Json json = Json::object();
  json["schema"] = document.schema;
  if (!document.answer.empty()) json["answer"] = document.answer;
  json["environment"] = document.environment;
  if (document.tables.empty()) {
    json["rows"] = Json::array();
  } else {
    json["table"] = document.tables.front().name;
    add_table(document.tables.front(), json);
  }
  if (document.tables.size() > 1) {
    json["tables"] = Json::object();
    for (const Table& table : document.tables) {
      Json& entry = json["tables"][table.name];
      entry["title"] = table.title;
      add_table(table, entry);
    }
  }
  return json;
}

void write_json(const Document& document, std::ostream& out) {
  out << to_json(document).dump(2) << '\n';
}

}  // namespace tracestep
