// Compares each of several cells with the first one, by their times in the same rounds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

// A cell to compare. A cell that failed, or that took part in other rounds than the first cell, is
// left out.
struct BesideCell {
  std::string label;
  // The key of the cell's specification; the members in which keys differ name the cells.
  Json key;
  // The samples in ms, and for each round how many of them it took.
  std::vector<double> ms, visits;
};

// Returns a table with a row for each cell: the ratio of its times to those of the first cell, over
// pairs of visits, with a 99.5 % interval, judged by compare_pairs(). With fewer than nine rounds
// it says "too few rounds".
Table beside_table(std::span<const BesideCell> cells);

// Makes a cell of each result whose device computes, from beside_samples() of the result, and from
// label_of(), key_of() and the number `copy` of its specification.
template <class Result>
std::vector<BesideCell> beside_cells(const std::vector<Result>& results) {
  std::vector<BesideCell> out;
  for (const Result& r : results) {
    if (!r.computes) continue;  // A device that computes nothing has no times.
    std::string label = label_of(r.spec);
    if (r.spec.copy > 1) label += " (copy " + std::to_string(r.spec.copy) + ")";
    Json key = key_of(r.spec);
    key["copy"] = r.spec.copy;
    out.push_back({std::move(label), std::move(key), beside_samples(r), r.visits});
  }
  return out;
}

}  // namespace tracestep
