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

bool keeps_order(const Program& program, const Node& view) {
  const std::vector<Type> operands{program.type(view.inputs[0])};
  const std::vector<Type> results{program.type(view.outputs[0])};
  if (operands[0].count() != results[0].count()) return false;
  const Layout dense{kNoValue, 0, contiguous_strides(operands[0].shape)};
  const auto layout = view.op->view({*view.op, view.attrs, operands, results}, dense);
  return layout && is_contiguous(results[0].shape, layout->strides);
}

}  // namespace tracestep
