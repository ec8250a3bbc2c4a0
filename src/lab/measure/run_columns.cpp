#include "lab/measure/run_columns.h"

#include <algorithm>
#include <map>

#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

ColumnKind kind_of(const RunField& field) {
  const Json usual = field.value(RunSpec());
  if (usual.is_string()) return ColumnKind::kText;
  if (usual.is_bool()) return ColumnKind::kBool;
  return usual.is_int() ? ColumnKind::kInt : ColumnKind::kReal;
}

// Returns the columns of the fields for which `is` holds; with descriptions if `are_described`.
Fields<RunSpec> columns_that(bool (*is)(const RunField&), bool are_described) {
  Fields<RunSpec> out{};
  for (const RunField& field : run_fields()) {
    if (!is(field)) continue;
    out.add({.name = field.name,
             .kind = kind_of(field),
             .description = are_described ? field.about : "",
             .data_only = field.show == FieldShow::kData,
             .if_varies = field.show == FieldShow::kVarying,
             .role = ColumnRole::kKey},
            field.value);
  }
  return out;
}

// Adds columns after the model's name for fields in which models of one name differ (folders with
// the same name, or presets with the same change), until those columns tell all models apart. A
// field gets a column if rows of one name differ in it.
void tell_models_apart(Table& table, std::size_t size) {
  const std::optional<std::size_t> cell = table.index_of("cell");
  if (!cell) return;
  std::vector<std::string> known;  // of each row: its name and the fields told so far
  for (const auto& row : table.rows) known.push_back(row[size].dump());
  std::size_t at = size + 1;
  for (const RunField& field : run_fields()) {
    if (field.group != FieldGroup::kModel || is_column(field) || table.index_of(field.name))
      continue;
    std::map<std::string, Json> first;
    std::vector<Json> values;
    bool tells = false;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Json& key = table.rows[i][table.index_of("cell").value()];
      const Json* found = key.is_object() ? key.find(field.name) : nullptr;
      values.push_back(found == nullptr ? Json() : *found);
      tells = first.emplace(known[i], values[i]).first->second != values[i] || tells;
    }
    if (!tells) continue;
    table.columns.insert(table.columns.begin() + static_cast<std::ptrdiff_t>(at),
                         {.name = field.name, .kind = kind_of(field), .role = ColumnRole::kKey});
    for (std::size_t i = 0; i < values.size(); ++i) {
      known[i] += values[i].dump();
      std::vector<Json>& row = table.rows[i];
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), std::move(values[i]));
    }
    ++at;
  }
}

}  // namespace

Fields<RunSpec> run_columns() {
  return columns_that(is_column, true);
}

Fields<RunSpec> key_columns() {
  return {{data_only(col::label), [](const RunSpec& run) { return label_of(run); }},
          {data_only(col::cell), key_of}};
}

Fields<RunSpec> program_columns() {
  const auto decides = [](const RunField& f) {
    return is_column(f) && (f.role == FieldRole::kProgram || f.is_axis);
  };
  return columns_that(decides, false).add(key_columns());
}

Fields<RunSpec> axis_columns() {
  const auto is_axis = [](const RunField& f) { return f.is_axis || f.show == FieldShow::kData; };
  return columns_that(is_axis, false).add(key_columns());
}

void show_unusual(Table& table) {
  const std::optional<std::size_t> size = table.index_of("size");
  if (!size) return;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const RunField* field = find_field(table.columns[i].name);
    if (field == nullptr) continue;
    const bool are_usual = std::ranges::all_of(table.rows, [&](const auto& row) {
      return row[i].is_null() || is_usual(*field, row[i], row[*size]);
    });
    if (field->show == FieldShow::kData) table.columns[i].data_only = are_usual;
    if (!are_usual) table.columns[i].if_varies = false;  // one value goes into the title
  }
  tell_models_apart(table, *size);
}

bool same_but(const RunSpec& a, const RunSpec& b, const std::vector<std::string_view>& fields) {
  std::vector<const RunField*> left_out;
  for (const std::string_view name : fields) left_out.push_back(&field_named(name));
  return std::ranges::all_of(run_fields(), [&](const RunField& field) {
    return !tells_apart(field) || std::ranges::find(left_out, &field) != left_out.end() ||
           field.value(a) == field.value(b);
  });
}

}  // namespace tracestep
