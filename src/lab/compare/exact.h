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
  std::optional<double> a, b;  // nullopt for a part that only the other has
  bool is_part = false;        // the figure of a part of a cell; else of a whole cell
  bool is_time = false;        // milliseconds of a few steps of one process, not judged
  std::string whole = {};      // of a part: the figure of the cell that it is a part of

  double growth() const { return b.value_or(0) - a.value_or(0); }
};

class ExactComparison {
 public:
  void add(const TablePair& pair);

  // The changed figures, those of cells first, then the parts that changed most; a note says how
  // many figures are equal.
  Table table() const;
  // A growth of more than `fail_percent` in a figure of a cell is a regression; its message names
  // the parts that caused it.
  void judge(double fail_percent, Gate& gate) const;
  bool is_empty() const { return compared_ == 0; }

 private:
  void add_cells(const TablePair& pair);
  void add_parts(const TablePair& pair);
  std::string parts_behind(const ExactChange& whole) const;

  std::vector<ExactChange> changes_;
  std::vector<std::string> missing_;  // "small 128 step: peak_bytes is only in A"
  int compared_ = 0;
};

}  // namespace tracestep
