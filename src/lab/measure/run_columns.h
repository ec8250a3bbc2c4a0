// What a run is, as columns of results: those fields of its specification that tables show.
#pragma once

#include "lab/report/fields.h"
#include "spec/run_spec.h"

namespace tracestep {

// Every field that has a column.
Fields<RunSpec> run_columns();
// Those that decide the program, and those that a grid varies: by what the rows of a table are told
// apart. Without descriptions.
Fields<RunSpec> program_columns();
Fields<RunSpec> axis_columns();

// Whether the programs of both runs are the same but for these fields.
bool same_but(const RunSpec& a, const RunSpec& b, std::initializer_list<std::string_view> fields);

}  // namespace tracestep
