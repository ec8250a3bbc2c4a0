// Compares two results: matches rows by what they measured, says how the times differ and whether
// by more than chance, and which exact figures changed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/compare/result_file.h"
#include "lab/measure/comparison.h"
#include "lab/report/table.h"

namespace tracestep {

struct CompareOptions {
  double margin = 0.02;  // Medians within this share of each other count as the same.
  std::vector<std::string> ignored = {};  // Key columns in which matched rows may differ.
  // The standard deviation between processes of one build, in percent of the median, for rows with
  // too few processes to show it. nullopt: it is taken from the other rows of the files.
  std::optional<double> noise_percent = {};
  // How many pairs of runs there are: the i-th run of B ran beside the i-th of A, in an order drawn
  // by lot (is_b_first()). 0: the runs are not paired. Each run has the same number of processes
  // for a row.
  int pairs = 0;
  // The limit of --fail-on-regression: a row that is slower or larger by more than this percentage
  // is a regression, and a row that cannot be judged is undecided.
  std::optional<double> fail_percent = {};
};

struct ComparisonReport {
  Table environment;  // The facts of the environments that differ, without dates and arguments.
  Table rows;         // A row for each matched pair of rows with samples.
  Table exact;        // The bytes, launches, FLOPs and errors that changed.
  // A line per row, with the cell and the reason; only with fail_percent. The gate is passed when
  // both lists are empty.
  std::vector<std::string> regressions;
  std::vector<std::string> undecided;  // Rows that neither passed nor failed.
};

// Compares two results. Error{kUsage} when they have no table in common, an ignored column is not a
// key, or two rows of one file have equal keys.
ComparisonReport compare_results(const ResultFile& a, const ResultFile& b,
                                 const CompareOptions& options);

}  // namespace tracestep
