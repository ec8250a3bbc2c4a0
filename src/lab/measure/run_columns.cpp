#include "lab/measure/run_columns.h"

#include <algorithm>

#include "spec/fields.h"

namespace tracestep {
namespace {

Column column_of(const RunField& field, std::string description) {
  const bool is_text = field.value(RunSpec()).is_string();
  return {.name = field.name,
          .kind = is_text ? ColumnKind::kText : ColumnKind::kInt,
          .description = std::move(description),
          .data_only = field.show == FieldShow::kData,
          .if_varies = field.show == FieldShow::kVarying};
}

}  // namespace

Fields<RunSpec> run_columns() {
  Fields<RunSpec> out{};
  for (const RunField& field : run_fields()) {
    if (is_column(field)) out.add(column_of(field, field.about), field.value);
  }
  return out;
}

Fields<RunSpec> key_columns() {
  return {{data_only(text_column("label")), [](const RunSpec& run) { return label_of(run); }},
          {data_only(structured_column("cell", "all parameters of the row")), key_of}};
}

Fields<RunSpec> program_columns() {
  Fields<RunSpec> out{};
  for (const RunField& field : run_fields()) {
    const bool tells_apart = field.role == FieldRole::kProgram || field.is_axis;
    if (is_column(field) && tells_apart) out.add(column_of(field, ""), field.value);
  }
  return out.add(key_columns());
}

Fields<RunSpec> axis_columns() {
  Fields<RunSpec> out{};
  for (const RunField& field : run_fields()) {
    const bool is_hidden = field.show == FieldShow::kData;
    if (field.is_axis || is_hidden) out.add(column_of(field, ""), field.value);
  }
  return out.add(key_columns());
}

void show_unusual(Table& table) {
  const auto size = std::ranges::find(table.columns, "size", &Column::name);
  if (size == table.columns.end()) return;
  const auto size_at = static_cast<std::size_t>(size - table.columns.begin());
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const RunField* field = find_field(table.columns[i].name);
    if (field == nullptr || field->show != FieldShow::kData) continue;
    table.columns[i].data_only = std::ranges::all_of(table.rows, [&](const auto& row) {
      return row[i].is_null() || is_usual(*field, row[i], row[size_at]);
    });
  }
}

std::vector<std::string_view> form_fields() {
  std::vector<std::string_view> out;
  for (const RunField& field : run_fields()) {
    if (field.is_form) out.push_back(field.name);
  }
  return out;
}

bool same_but(const RunSpec& a, const RunSpec& b, const std::vector<std::string_view>& fields) {
  std::vector<const RunField*> left_out;
  for (const std::string_view name : fields) left_out.push_back(&field_named(name));
  return std::ranges::all_of(run_fields(), [&](const RunField& field) {
    const bool tells_apart = field.role == FieldRole::kProgram || field.is_axis;
    return !tells_apart || std::ranges::find(left_out, &field) != left_out.end() ||
           field.value(a) == field.value(b);
  });
}

}  // namespace tracestep
