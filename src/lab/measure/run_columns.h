// The fields of a run's specification that tables show, as columns.
#pragma once

#include <string_view>
#include <vector>

#include "lab/report/fields.h"
#include "spec/run_spec.h"

namespace tracestep {

// Every field that has a column.
Fields<RunSpec> run_columns();
// What identifies a row, whichever columns are shown; only in csv and json: label_of() the run as
// the column "label", its key as the structured column "cell".
Fields<RunSpec> key_columns();
// The columns that tell a table's rows apart: fields that decide the program or how it
// runs, and those that a grid varies. Without descriptions; with the key columns.
Fields<RunSpec> program_columns();
Fields<RunSpec> axis_columns();
// Also shows people the data-only columns of fields in which rows of this table differ (several
// executors), or are not as usual for their size (a vocabulary other than the preset's).
void show_unusual(Table& table);

// The fields that choose how a step is computed and hardly change its results: those with is_form.
std::vector<std::string_view> form_fields();
// Whether both runs agree in all fields of program_columns() except `fields`. CHECKs the names.
bool same_but(const RunSpec& a, const RunSpec& b, const std::vector<std::string_view>& fields);

}  // namespace tracestep
