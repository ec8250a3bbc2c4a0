// The figures of two results that are the same in every run of one program: bytes, launches, FLOPs
// and errors. They are compared exactly, and the kernels, buffers or components that changed are
// named.
#pragma once

#include <string>
#include <vector>

#include "lab/compare/gate.h"
#include "lab/compare/result_file.h"

namespace tracestep {

// A figure that is not the same in both results.
struct ExactChange {
  std::string table, row, figure;
  double a = 0, b = 0;  // 0 for a part that is only in the other
  bool in_a = true, in_b = true;
  bool is_part = false;  // the figure of a part of a cell; else of a whole cell
  bool is_time = false;  // milliseconds of one process, not judged

  double growth() const { return b - a; }
};

class ExactComparison {
 public:
  // Compares two tables of the same name. `ignored`: as for by_identity().
  void add(const ResultTable& a, const ResultTable& b, const std::vector<std::string>& ignored);

  // The changed figures, those of cells first, then the parts that changed most; a note says how
  // many figures are equal.
  Table table() const;
  // A growth of more than `fail_percent` in a figure of a cell is a regression; its message names
  // the parts that caused it.
  void judge(double fail_percent, Gate& gate) const;
  bool is_empty() const { return compared_ == 0; }

 private:
  void add_cells(const ResultTable& a, const ResultTable& b,
                 const std::vector<std::string>& ignored);
  void add_parts(const ResultTable& a, const ResultTable& b);
  std::string parts_behind(const ExactChange& whole) const;

  std::vector<ExactChange> changes_;
  std::vector<std::string> missing_;  // "small 128 step: peak_bytes is only in A"
  int compared_ = 0;
};

}  // namespace tracestep
