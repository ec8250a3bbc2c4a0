// The run that a report is about: one model at one context, in one precision and in one kind of
// ops, chosen once, so that a page's sentence, chart and tables are of the same rows.
#pragma once

#include <span>

#include "lab/report/table.h"

namespace tracestep {

// The table "subject": one row with the keys of that run but for its mode, which each question
// chooses; no row and no column where nothing was run. It is the largest model among those of which
// most is known: forward, forward with backward and a step, timed, and a step's kernels and bytes.
// Pages select "cells as of[mode step]" by it.
Table subject_table(std::span<const Table> tables);

}  // namespace tracestep
