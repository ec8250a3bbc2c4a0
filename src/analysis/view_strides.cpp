#include "analysis/view_strides.h"

namespace tracestep {

std::optional<Strides> carry_strides(const ViewDimensions& from, const Strides& strides,
                                     const ViewDimensions& to) {
  Strides out = Dims::filled(to.sizes.rank(), 0);
  for (int k = 0; k < to.sizes.rank(); ++k) {
    const std::int64_t step = to.steps[k];
    if (to.sizes[k] == 1) continue;
    for (int i = 0; i < from.sizes.rank(); ++i) {
      const std::int64_t other = from.steps[i];
      if (from.sizes[i] == 1 || other == 0 || other > step) continue;
      if (step < other * from.sizes[i] && step % other == 0) out[k] = strides[i] * (step / other);
    }
    if (step == 0 || out[k] == 0) return std::nullopt;
    for (int i = 0; i < from.sizes.rank(); ++i) {
      const std::int64_t other = from.steps[i];
      if (from.sizes[i] == 1 || other < step || other >= step * to.sizes[k]) continue;
      if (other % step != 0 || strides[i] != out[k] * (other / step)) return std::nullopt;
    }
  }
  return out;
}

}  // namespace tracestep
