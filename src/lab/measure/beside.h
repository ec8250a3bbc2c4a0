// Compares cells that were measured in the same rounds, each with the first: whether they differ.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"

namespace tracestep {

// A cell of such a comparison. One that failed, or has other rounds than the first, is left out.
struct BesideCell {
  std::string label;
  Json key;                        // of its specification: the members that differ tell cells apart
  std::vector<double> ms, visits;  // samples, and how many of them each round took
};

// Rows: cells; columns: the ratio of times by pairs of visits, at 99.5 %, as compare_pairs()
// decides; "too few rounds" with fewer than nine.
Table beside_table(std::span<const BesideCell> cells);

// Makes cells of results that have beside_samples(), and whose specifications have label_of(),
// key_of() and a number `copy`.
template <class Result>
std::vector<BesideCell> beside_cells(const std::vector<Result>& results) {
  std::vector<BesideCell> out;
  for (const Result& r : results) {
    if (!r.computes) continue;  // it has no times
    std::string label = label_of(r.spec);
    if (r.spec.copy > 1) label += " (copy " + std::to_string(r.spec.copy) + ")";
    Json key = key_of(r.spec);
    key["copy"] = r.spec.copy;
    out.push_back({std::move(label), std::move(key), beside_samples(r), r.visits});
  }
  return out;
}

}  // namespace tracestep
