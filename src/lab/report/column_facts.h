// What a JSON result says of a column, besides its cells: all that a writer needs to show it as it
// was shown, and what those that read results need to know of it.
#pragma once

#include <string>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

// Members that are as usual are left out. "kind", "unit", "title", "description", "role",
// "part_of", "digits", "timing", "words", and "shown": "no" or "if it varies".
Json facts_of(const Column& column);
// The inverse. Of a result that does not say the kinds of its columns, they are kText.
Column column_of(const std::string& name, const Json& facts);

}  // namespace tracestep
