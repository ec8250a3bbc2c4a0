// Attention, one query at a time: weigh every visible key by e^(scale·q·k), capped if asked, then
// average the values with these weights. Heads of q that share keys lie side by side.
#include <cmath>
#include <limits>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void attention(const KernelCall& call) {
  const Shape& q_shape = call.inputs[0].shape;
  const std::int64_t keys = call.inputs[1].shape.back(1), width = q_shape.back();
  const double scale = call.attrs.real("scale"), cap = call.attrs.real("cap");
  const std::int64_t window = call.attrs.integer("window");
  if (q_shape.product() == 0) return;
  const bool has_heads = q_shape.rank() >= 3;
  const std::int64_t group = has_heads ? q_shape.back(2) / call.inputs[1].shape.back(2) : 1;
  const View<double> q(call.inputs[0]), k(call.inputs[1]), v(call.inputs[2]), y(call.outputs[0]);
  const std::int64_t ahead =
      call.inputs.size() > 3 ? integer_at(call.inputs[3], {}) : keys - q_shape.back(1);

  for_each_index(rows_of(q_shape), [&](const Dims& query) {
    Dims head = prefix(query, query.rank() - 1);
    if (has_heads) head[head.rank() - 1] /= group;
    const std::int64_t visible =
        call.attrs.flag("causal") ? std::min(keys, query.back() + ahead + 1) : keys;
    std::vector<double> weights;
    double top = -std::numeric_limits<double>::infinity();
    const std::int64_t first =
        window > 0 ? std::max<std::int64_t>(0, query.back() + ahead + 1 - window) : 0;
    for (std::int64_t j = first; j < visible; ++j) {
      long double dot = 0;
      for (std::int64_t d = 0; d < width; ++d) {
        dot += static_cast<long double>(q[appended(query, d)]) * k[appended(appended(head, j), d)];
      }
      const double score = scale * static_cast<double>(dot);
      weights.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
      top = std::max(top, weights.back());
    }
    long double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - top);
    for (std::int64_t d = 0; d < width; ++d) {
      long double mean = 0;
      for (std::size_t j = 0; j < weights.size(); ++j) {
        const Dims key = appended(head, first + static_cast<std::int64_t>(j));
        mean += weights[j] / total * v[appended(key, d)];
      }
      y[appended(query, d)] = static_cast<double>(mean);
    }
  });
}

}  // namespace

void add_attention(KernelTable& table) {
  table.add("attention", attention);
}

}  // namespace tracestep::reference
