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

Fields<RunSpec> program_columns() {
  Fields<RunSpec> out{};
  for (const RunField& field : run_fields()) {
    const bool tells_apart = field.role == FieldRole::kProgram || field.is_axis;
    if (is_column(field) && tells_apart) out.add(column_of(field, ""), field.value);
  }
  return out;
}

Fields<RunSpec> axis_columns() {
  Fields<RunSpec> out{};
  for (const RunField& field : run_fields()) {
    if (field.is_axis) out.add(column_of(field, ""), field.value);
  }
  return out;
}

bool same_but(const RunSpec& a, const RunSpec& b, std::initializer_list<std::string_view> fields) {
  return std::ranges::all_of(run_fields(), [&](const RunField& field) {
    const bool tells_apart = field.role == FieldRole::kProgram || field.is_axis;
    return !tells_apart || std::ranges::find(fields, field.name) != fields.end() ||
           field.value(a) == field.value(b);
  });
}

}  // namespace tracestep
