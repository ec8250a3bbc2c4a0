// The figures of two results that are the same in every run of one program: bytes, launches, FLOPs
// and errors. They are compared exactly, and the kernels, buffers or components that changed are
// named.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/compare/gate.h"
#include "lab/compare/rows.h"

namespace tracestep {

// A figure that is not the same in both results.
struct ExactChange {
  std::string table, row, figure;
  // The figure in A and in B; nullopt: that result does not have the part.
  std::optional<double> a, b;
  bool is_part = false;  // True: the figure belongs to a part of a cell; false: to a whole cell.
  // True: it is a time in ms from a few steps of one process, which is shown but not judged.
  bool is_time = false;
  std::string whole = {};  // For a part: the name of the cell's figure of which it is a part.

  double growth() const { return b.value_or(0) - a.value_or(0); }
};

class ExactComparison {
 public:
  void add(const TablePair& pair);

  // Returns the changed figures, those of cells first, then the parts that changed most; a note
  // says how many figures were compared.
  Table table() const;
  // Reports a regression for each figure of a cell that grew by more than `fail_percent`, naming
  // the parts that caused it.
  void judge(double fail_percent, Gate& gate) const;
  bool is_empty() const { return compared_ == 0; }

 private:
  void add_cells(const TablePair& pair);
  void add_parts(const TablePair& pair);
  std::string parts_behind(const ExactChange& whole) const;

  std::vector<ExactChange> changes_;
  std::vector<std::string> missing_;  // Messages such as "small 128 step: peak_bytes is only in A".
  int compared_ = 0;
};

}  // namespace tracestep
