// The fields of a run's specification that tables show, as columns.
#pragma once

#include "lab/report/fields.h"
#include "spec/run_spec.h"

namespace tracestep {

// Every field that has a column.
Fields<RunSpec> run_columns();
// The columns that tell a table's rows apart: fields that decide the program, and those that a grid
// varies. Without descriptions.
Fields<RunSpec> program_columns();
Fields<RunSpec> axis_columns();

// Whether both runs agree in all fields of program_columns() except `fields`.
bool same_but(const RunSpec& a, const RunSpec& b, std::initializer_list<std::string_view> fields);

}  // namespace tracestep
