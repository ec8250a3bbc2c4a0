#include "lab/measure/run_columns.h"

#include <algorithm>

#include "spec/fields.h"

namespace tracestep {
namespace {

// Those of the fields for which `is` holds.
Fields<RunSpec> columns_that(bool (*is)(const RunField&), bool are_described) {
  Fields<RunSpec> out{};
  for (const RunField& field : run_fields()) {
    if (!is(field)) continue;
    const bool is_text = field.value(RunSpec()).is_string();
    out.add({.name = field.name,
             .kind = is_text ? ColumnKind::kText : ColumnKind::kInt,
             .description = are_described ? field.about : "",
             .data_only = field.show == FieldShow::kData,
             .if_varies = field.show == FieldShow::kVarying,
             .role = ColumnRole::kKey},
            field.value);
  }
  return out;
}

}  // namespace

Fields<RunSpec> run_columns() {
  return columns_that(is_column, true);
}

Fields<RunSpec> key_columns() {
  return {{data_only(text_column("label")), [](const RunSpec& run) { return label_of(run); }},
          {data_only(structured_column("cell", "all parameters of the row")), key_of}};
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
    if (field == nullptr || field->show != FieldShow::kData) continue;
    table.columns[i].data_only = std::ranges::all_of(table.rows, [&](const auto& row) {
      return row[i].is_null() || is_usual(*field, row[i], row[*size]);
    });
  }
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
