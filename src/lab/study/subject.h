// Chooses the run that a report is about: one model at one context, in one precision and
// granularity of ops. It is chosen once, so that a page's sentence, chart and tables show the same
// rows.
#pragma once

#include <span>

#include "lab/report/table.h"

namespace tracestep {

// The table "subject" with one row: the keys of the chosen run without its mode, which each
// question chooses. It has no row and no columns if nothing was run. The run has the largest model
// among those for which the most is known: timed forward, forward with backward, and step, and the
// kernels and bytes of a step. Pages select rows by "cells as of[mode step]".
Table subject_table(std::span<const Table> tables);

}  // namespace tracestep
