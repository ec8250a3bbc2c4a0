#include "lab/measure/recorded_times.h"

#include <vector>

namespace tracestep {

Text LeftOfSpan::parts() const {
  std::vector<Text> list;
  if (recorded_gaps.value > 0) {
    list.push_back(say("{} between kernels of recorded steps", {duration(recorded_gaps)}));
  }
  if (held_up.value > 0) {
    list.push_back(
        say("{} for which single launches were held up there, which counts for no kernel",
            {duration(held_up)}));
  }
  const Relation longer = compare(span - recorded_span, Quantity::constant(0));
  const auto apart_by = [&](const Quantity& ms, const char* how) {
    return say("{} by which plain steps came out {}", {duration(ms), because(longer, how)});
  };
  if (longer.is(Ordering::kMore)) list.push_back(apart_by(span - recorded_span, "longer"));
  Text out = join(list, ", ");
  if (longer.is(Ordering::kLess)) {
    out += because(longer, ", less ") + apart_by(recorded_span - span, "shorter");
  }
  return out;
}

}  // namespace tracestep
