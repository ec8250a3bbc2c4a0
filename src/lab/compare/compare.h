// Compares two results: rows matched by what they measured, how the times differ, whether that is
// more than chance, and which exact figures changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/compare/result_file.h"
#include "lab/measure/comparison.h"
#include "lab/report/table.h"

namespace tracestep {

struct CompareOptions {
  double margin = 0.02;                   // medians within 2 % of each other are the same
  std::vector<std::string> ignored = {};  // key columns that may differ between matched rows
  // How much processes of one build differ, in percent of the median (standard deviation); for rows
  // of too few processes. Without it, what the other rows of the files show.
  std::optional<double> noise_percent = {};
  // How many times both sides were run, the i-th run of B beside the i-th of A in an order drawn by
  // lot (is_b_first()); 0: not in pairs. Each run has as many of a row's processes.
  int pairs = 0;
  // The gate: a row slower or larger by more than this percentage is a regression, and one that
  // cannot be judged is undecided.
  std::optional<double> fail_percent = {};
};

struct ComparisonReport {
  Table environment;  // differences, without dates and arguments
  Table rows;         // of rows with samples
  Table exact;        // bytes, launches, FLOPs and errors that changed
  // A line per row, with the cell and the reason; only with fail_percent. The gate is passed when
  // both lists are empty.
  std::vector<std::string> regressions;
  std::vector<std::string> undecided;  // neither passed nor failed
};

// Error{kUsage} when the files have no table in common, an ignored column is not a key, or two rows
// of one file have equal keys.
ComparisonReport compare_results(const ResultFile& a, const ResultFile& b,
                                 const CompareOptions& options);

}  // namespace tracestep
