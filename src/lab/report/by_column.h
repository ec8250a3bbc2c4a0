// The JSON of a result with its rows by column, which gzip makes a third as large as rows with
// their names: what a page carries (html.h). page.js undoes it in the browser.
#pragma once

#include "base/json.h"

namespace tracestep {

// Packs a result with `tables`: rows that have the same members become {"cells"}, with a list for
// each member, and whole numbers their "steps" from one row to the next. The rows at the top, which
// are those of the main table, become null.
Json by_column(const Json& result);
// Undoes by_column(): returns the result with rows again. A table that has rows already stays as it
// is.
Json by_row(const Json& packed);

}  // namespace tracestep
