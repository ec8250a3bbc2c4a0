// The fields of a run's specification that tables show, as columns: each is a key of its row.
#pragma once

#include <string_view>
#include <vector>

#include "lab/report/fields.h"
#include "run/run_spec.h"

namespace tracestep {

// Every field that has a column.
Fields<RunSpec> run_columns();
// Identify a row, whichever columns are shown; only in csv and json: label_of() the run as the
// column "label", its key as the structured column "cell".
Fields<RunSpec> key_columns();
// The columns that tell a table's rows apart: fields that decide the program or how it
// runs, and those that a grid varies. Without descriptions; with the key columns.
Fields<RunSpec> program_columns();
Fields<RunSpec> axis_columns();
// Also shows people the data-only columns of fields in which rows of this table differ (several
// executors), or are not as usual for their size (a vocabulary other than the preset's). Where rows
// of one name are of different models, the fields that tell these apart become columns behind the
// name.
void show_unusual(Table& table);

// True if both runs agree in all fields that decide programs or speed, except `fields`.
// CHECKs the names.
bool same_but(const RunSpec& a, const RunSpec& b, const std::vector<std::string_view>& fields);

}  // namespace tracestep
