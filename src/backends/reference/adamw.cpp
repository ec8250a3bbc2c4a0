// AdamW on one tensor: decoupled decay first, then the bias-corrected step (the corrections are
// inside step_size, and eps is added to the uncorrected root, times the second element of step_size
// where there is one). A step that is not applied leaves all three as they are.
#include <cmath>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void adamw(const KernelCall& call) {
  const Attrs& attrs = call.attrs;
  const double beta1 = attrs.real("beta1"), beta2 = attrs.real("beta2");
  const View<double> p(call.inputs[0]), grad(call.inputs[1]), m(call.inputs[2]), v(call.inputs[3]);
  const double lr = *call.inputs[4].as<double>(), step_size = *call.inputs[5].as<double>();
  const bool is_pair = call.inputs[5].shape.rank() > 0;
  const double eps = attrs.real("eps") * (is_pair ? call.inputs[5].as<double>()[1] : 1.0);
  const double grad_scale = call.inputs.size() > 6 ? *call.inputs[6].as<double>() : 1.0;
  const bool apply = call.inputs.size() <= 7 || *call.inputs[7].as<std::uint8_t>() != 0;
  const View<double> p_new(call.outputs[0]), m_new(call.outputs[1]), v_new(call.outputs[2]);
  for_each_index(call.inputs[0].shape, [&](const Dims& i) {
    const double g = grad_scale * grad[i];
    const double first = beta1 * m[i] + (1 - beta1) * g;
    const double second = beta2 * v[i] + (1 - beta2) * g * g;
    const double decayed = p[i] - lr * attrs.real("weight_decay") * p[i];
    const double moved = decayed - step_size * first / (std::sqrt(second) + eps);
    // The old values are read before a result is written in their place.
    const double results[3] = {apply ? moved : p[i], apply ? first : m[i], apply ? second : v[i]};
    if (p_new) p_new[i] = results[0];
    if (m_new) m_new[i] = results[1];
    if (v_new) v_new[i] = results[2];
  });
}

}  // namespace

void add_adamw(KernelTable& table) {
  table.add("adamw", adamw);
}

}  // namespace tracestep::reference
