// A study of models that are too small to be of use, run once for all tests: every table that the
// real one has, within about a second.
#pragma once

#include "lab/study/study.h"

namespace tracestep::testing {

// The study with times that are set, not measured: forward 10 ms, with backward 30 ms, a step 35
// ms; primitive ops take 1.5 times as long, the larger size 8 times; all of them valid. Bytes,
// counts and numbers are as measured.
const StudyReport& small_study();

// The study with the times that were measured, and what the checker says of them.
const StudyReport& measured_study();

// Threads of the study's cells, which tell them from cells that were not given any.
inline constexpr int kStudyThreads = 3;

// The cell "cells[mode step; size small].median_ms", to be read or changed: of the first row with
// these cells, or of the first one. CHECKs that it is there.
Json& cell_at(std::vector<Table>& tables, std::string_view path);

}  // namespace tracestep::testing
