// Mean cross-entropy: loss = (1/N) Σ_rows (log Σ_j e^(z_j) - z_target).
// Its gradient is (e^(z_j - lse) - [j = target]) / N per logit, since Σ_j e^(z_j) = e^lse; that of
// columns and of rows that do not count is 0.
#include <cmath>
#include <limits>
#include <optional>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"
#include "ops/shared_attrs.h"

namespace tracestep::reference {
namespace {

// Says which rows count, all but those with the target `ignored`, and by what the sum is divided.
struct Counted {
  double count;
  std::optional<std::int64_t> ignored;

  Counted(const KernelCall& call, std::size_t at, std::int64_t rows)
      : count(static_cast<double>(rows)) {
    if (call.inputs.size() <= at) return;
    count = View<double>(call.inputs[at])[{}];
    ignored = call.attrs.integer("ignore_index");
  }
};

void cross_entropy(const KernelCall& call) {
  const TensorRef& targets = call.inputs[1];
  const std::int64_t rows = call.inputs[0].shape[0];
  const std::int64_t vocab = ops::loss_columns(call.attrs, call.inputs[0].shape[1]);
  const View<double> logits(call.inputs[0]), loss(call.outputs[0]), lse(call.outputs[1]);
  const Counted counted(call, 2, rows);
  long double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    double top = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = 0; j < vocab; ++j) top = std::max(top, logits[{row, j}]);
    long double sum = 0;
    for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(logits[{row, j}] - top);
    const double log_sum = top + std::log(static_cast<double>(sum));
    if (lse) lse[{row}] = log_sum;
    if (integer_at(targets, {row}) == counted.ignored) continue;
    const std::int64_t target =
        checked_index("cross_entropy", integer_at(targets, {row}), {row}, vocab);
    total += log_sum - logits[{row, target}];
  }
  if (loss) loss[{}] = static_cast<double>(total) / counted.count;
}

void cross_entropy_grad(const KernelCall& call) {
  const TensorRef& targets = call.inputs[2];
  const std::int64_t rows = call.inputs[1].shape[0], width = call.inputs[1].shape[1];
  const std::int64_t vocab = ops::loss_columns(call.attrs, width);
  const View<double> dloss(call.inputs[0]), logits(call.inputs[1]), lse(call.inputs[3]);
  const View<double> dlogits(call.outputs[0]);
  const Counted counted(call, 4, rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (integer_at(targets, {row}) == counted.ignored) {
      for (std::int64_t j = 0; j < width; ++j) dlogits[{row, j}] = 0;
      continue;
    }
    const std::int64_t target =
        checked_index("cross_entropy_grad", integer_at(targets, {row}), {row}, vocab);
    for (std::int64_t j = 0; j < vocab; ++j) {
      const double p = std::exp(logits[{row, j}] - lse[{row}]);
      dlogits[{row, j}] = dloss[{}] * (p - (j == target ? 1 : 0)) / counted.count;
    }
    for (std::int64_t j = vocab; j < width; ++j) dlogits[{row, j}] = 0;
  }
}

}  // namespace

void add_cross_entropy(KernelTable& table) {
  table.add("cross_entropy", cross_entropy);
  table.add("cross_entropy_grad", cross_entropy_grad);
}

}  // namespace tracestep::reference
