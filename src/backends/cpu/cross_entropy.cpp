// Cross-entropy of rows of logits: two passes over a row that stays in L2, and a gradient that may
// be written over the logits.
#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/plain_chunks.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

float element(const Operand& x, std::int64_t i) {
  float value;
  to_floats(x.at(i), x.dtype, 1, 1, &value);
  return value;
}

std::int64_t target_of(const TensorRef& targets, std::int64_t row, std::int64_t vocab) {
  const std::int64_t target = integer_at(targets, row);
  if (target < 0 || target >= vocab) {
    fail_usage("cross_entropy", "target {} in row {} is outside [0, {})", target, row, vocab);
  }
  return target;
}

void cross_entropy_kernel(const KernelCall& call) {
  const Operand logits(call.inputs[0]);
  const TensorRef &targets = call.inputs[1], &loss = call.outputs[0], &lse = call.outputs[1];
  const std::int64_t rows = call.inputs[0].shape[0], vocab = call.inputs[0].shape[1];
  auto* losses = reinterpret_cast<float*>(call.workspace.data());  // [rows]
  for_rows(call, rows, vocab, [&](std::int64_t row) {
    const std::int64_t target = target_of(targets, row, vocab);
    const float total = row_log_sum_exp(logits, row * vocab, vocab);
    if (lse.data != nullptr) lse.as<float>()[row] = total;
    losses[row] = total - element(logits, row * vocab + target);
  });
  if (loss.data == nullptr) return;
  double sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) sum += static_cast<double>(losses[row]);
  *loss.as<float>() = static_cast<float>(sum / static_cast<double>(rows));
}

void cross_entropy_grad_kernel(const KernelCall& call) {
  const Operand logits(call.inputs[1]), lse(call.inputs[3]);
  const TensorRef &targets = call.inputs[2], &out = call.outputs[0];
  const std::int64_t rows = out.shape[0], vocab = out.shape[1];
  const float scale = scalar_of(call.inputs[0]) * (1.0f / static_cast<float>(rows));
  const auto bytes = static_cast<std::int64_t>(size_of(out.dtype));
  for_rows(call, rows, vocab, [&](std::int64_t row) {
    const std::int64_t begin = row * vocab, target = target_of(targets, row, vocab);
    const float shift = element(lse, row);
    const float hit = element(logits, begin + target);
    const auto probability = [=](V v) HWY_ATTR { return exp(v - splat(shift)); };
    for_row_tiles(begin, vocab, [&](std::int64_t at, std::int64_t n) {
      Tile in, tile;
      map([=](V v) HWY_ATTR { return probability(v) * splat(scale); }, n,
          destination(out, at, tile), read(logits, at, n, in));
      finish(out, at, n, tile);
    });
    const float p = hn::GetLane(probability(splat(hit)).v);
    const float value = (p - 1.0f) * scale;
    from_floats(&value, 1, out.dtype, out.as<std::byte>() + (begin + target) * bytes);
  });
}

constexpr NamedKernel kCrossEntropy[] = {{"cross_entropy", cross_entropy_kernel},
                                         {"cross_entropy_grad", cross_entropy_grad_kernel}};

}  // namespace

std::span<const NamedKernel> cross_entropy_kernels() {
  return kCrossEntropy;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(cross_entropy_kernels);

void add_cross_entropy_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(cross_entropy_kernels)()) {
    table.add(k.op, k.kernel);
  }
}

}  // namespace tracestep::cpu
#endif
