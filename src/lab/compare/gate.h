// The gate of `compare --fail-on-regression`. It passes only rows that it could judge: any other
// row is listed as undecided.
#pragma once

#include <optional>
#include <string>

#include "lab/compare/compare.h"

namespace tracestep {

class Gate {
 public:
  // Judges by this percentage, or nothing without one. Both arguments must outlive the gate;
  // regressions and undecided rows are added to `out`.
  Gate(const std::optional<double>& fail_percent, ComparisonReport& out)
      : fail_percent_(fail_percent), out_(out) {}

  // Add a regression or an undecided row. The message is the row's `label` followed by `why`.
  void regress(const std::string& label, const std::string& why);
  void undecide(const std::string& label, const std::string& why);

  // Judges a pair of rows of which at least one failed. A failure that the first result also has is
  // no regression.
  void judge_statuses(const std::string& label, const std::string& a, const std::string& b);
  void judge_change(const std::string& label, const Comparison& comparison);
  // Ends the judgement. With `is_empty`, nothing was compared, which does not pass.
  void finish(bool is_empty);

 private:
  const std::optional<double>& fail_percent_;
  ComparisonReport& out_;
};

}  // namespace tracestep
