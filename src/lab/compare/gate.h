// What `compare --fail-on-regression` makes of the rows. It passes only what it has seen to be
// right: a row that cannot be judged is named, never passed over.
#pragma once

#include <optional>
#include <string>

#include "lab/compare/compare.h"

namespace tracestep {

class Gate {
 public:
  // Without a percentage nothing is judged. Both must outlive the gate; `out` gets what it finds.
  Gate(const std::optional<double>& fail_percent, ComparisonReport& out)
      : fail_percent_(fail_percent), out_(out) {}

  // `label`: of the row; `why` stands behind it in the message.
  void regress(const std::string& label, const std::string& why);
  void undecide(const std::string& label, const std::string& why);

  // Of a pair of which one is not "ok". What was not there before is no regression.
  void judge_statuses(const std::string& label, const std::string& a, const std::string& b);
  void judge_change(const std::string& label, const Comparison& comparison);
  // `tested`: the pairs whose times were compared.
  void finish(int tested);

 private:
  const std::optional<double>& fail_percent_;
  ComparisonReport& out_;
};

}  // namespace tracestep
