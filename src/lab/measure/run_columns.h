// The fields of a run's specification that tables show, as columns: each is a key of its row.
#pragma once

#include <string_view>
#include <vector>

#include "lab/report/fields.h"
#include "run/run_spec.h"

namespace tracestep {

// Returns a column for each field of a run that has one (is_column()).
Fields<RunSpec> run_columns();
// Returns columns that identify a row whichever other columns are shown: "label" with label_of()
// the run, and "cell" with its key. They are only in csv and json.
Fields<RunSpec> key_columns();
// Return key columns without descriptions, then key_columns(): program_columns() of fields that
// change the program or that a grid varies, axis_columns() of the latter and of kData fields.
Fields<RunSpec> program_columns();
Fields<RunSpec> axis_columns();
// Shows people the columns of fields in which rows of this table differ (such as several executors)
// or that are not as usual (such as another vocabulary, or adapters in every row). If rows with one
// name are of different models, the fields that tell the models apart become columns after the
// name.
void show_unusual(Table& table);

// True if both runs agree in all fields that decide programs or speed, except `fields`.
// CHECKs the names.
bool same_but(const RunSpec& a, const RunSpec& b, const std::vector<std::string_view>& fields);

}  // namespace tracestep
