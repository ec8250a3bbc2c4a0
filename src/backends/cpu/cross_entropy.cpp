// Cross-entropy of rows of logits: two passes over a row that stays in L2, a gradient that may be
// written over the logits, and both at once.
#include <cstring>

#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/plain_chunks.h"
#include "backends/cpu/targets.h"
#include "ops/shared_attrs.h"

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

struct RowLoss {
  float lse, loss;  // lse = log Σ exp(logits), loss = lse - logits[target]
};

// Rows of logits, of which the first `vocab` columns count. `at`: the index of operand `count`; in
// a call that has it the loss is the sum over count, and rows of ignored targets are left out.
struct Rows {
  std::int64_t count, width, vocab;
  float divisor;
  bool ignores;
  std::int64_t ignored = 0;

  Rows(const KernelCall& call, const TensorRef& logits, std::size_t at)
      : count(logits.shape[0]),
        width(logits.shape[1]),
        vocab(ops::loss_columns(call.attrs, width)),
        divisor(static_cast<float>(count)),
        ignores(call.inputs.size() > at) {
    if (!ignores) return;
    divisor = scalar_of(call.inputs[at]);
    ignored = call.attrs.integer("ignore_index");
  }

  bool leaves_out(const TensorRef& targets, std::int64_t row) const {
    return ignores && integer_at(targets, row) == ignored;
  }
};

RowLoss loss_of_row(const Operand& logits, const TensorRef& targets, std::int64_t row,
                    const Rows& rows) {
  const std::int64_t begin = row * rows.width;
  const bool is_left_out = rows.leaves_out(targets, row);
  const std::int64_t target = is_left_out ? 0 : target_of(targets, row, rows.vocab);
  const float lse = row_log_sum_exp(logits, begin, rows.vocab);
  if (is_left_out) return {lse, 0.0f};
  return {lse, lse - element(logits, begin + target)};
}

void write_mean(const TensorRef& loss, const float* losses, const Rows& rows) {
  if (loss.data == nullptr) return;
  double sum = 0;
  for (std::int64_t row = 0; row < rows.count; ++row) sum += static_cast<double>(losses[row]);
  *loss.as<float>() = static_cast<float>(sum / static_cast<double>(rows.divisor));
}

// Writes a row of the gradient, in memory that may be the logits' own.
void write_gradient(const Operand& logits, const TensorRef& targets, std::int64_t row,
                    const Rows& rows, float lse, float scale, const TensorRef& out) {
  const std::int64_t vocab = rows.vocab, begin = row * rows.width;
  const auto bytes = static_cast<std::int64_t>(size_of(out.dtype));
  if (rows.leaves_out(targets, row)) {
    std::memset(out.as<std::byte>() + begin * bytes, 0,
                static_cast<std::size_t>(rows.width * bytes));
    return;
  }
  const std::int64_t target = target_of(targets, row, vocab);
  const float hit = element(logits, begin + target);
  const auto probability = [=](V v) HWY_ATTR { return exp(v - splat(lse)); };
  for_row_tiles(begin, vocab, [&](std::int64_t at, std::int64_t n) {
    Tile in, tile;
    map([=](V v) HWY_ATTR { return probability(v) * splat(scale); }, n, destination(out, at, tile),
        read(logits, at, n, in));
    finish(out, at, n, tile);
  });
  const float p = hn::GetLane(probability(splat(hit)).v);
  const float value = (p - 1.0f) * scale;
  from_floats(&value, 1, out.dtype, out.as<std::byte>() + (begin + target) * bytes);
  std::memset(out.as<std::byte>() + (begin + vocab) * bytes, 0,
              static_cast<std::size_t>((rows.width - vocab) * bytes));
}

// Returns the factor on each row's gradient: the gradient of the loss over the divisor of the sum.
float scale_of(const TensorRef& dloss, const Rows& rows) {
  return scalar_of(dloss) * (1.0f / rows.divisor);
}

void cross_entropy_kernel(const KernelCall& call) {
  const Operand logits(call.inputs[0]);
  const TensorRef& lse = call.outputs[1];
  const Rows rows(call, call.inputs[0], 2);
  auto* losses = reinterpret_cast<float*>(call.workspace.data());  // [rows]
  for_rows(call, rows.count, rows.width, [&](std::int64_t row) {
    const RowLoss of_row = loss_of_row(logits, call.inputs[1], row, rows);
    if (lse.data != nullptr) lse.as<float>()[row] = of_row.lse;
    losses[row] = of_row.loss;
  });
  write_mean(call.outputs[0], losses, rows);
}

void cross_entropy_grad_kernel(const KernelCall& call) {
  const Operand logits(call.inputs[1]), lse(call.inputs[3]);
  const TensorRef& out = call.outputs[0];
  const Rows rows(call, call.inputs[1], 4);
  const float scale = scale_of(call.inputs[0], rows);
  for_rows(call, rows.count, rows.width, [&](std::int64_t row) {
    write_gradient(logits, call.inputs[2], row, rows, element(lse, row), scale, out);
  });
}

// Computes the loss, and each row's gradient while the row is still in the cache.
void cross_entropy_with_grad_kernel(const KernelCall& call) {
  const Operand logits(call.inputs[1]);
  const TensorRef &targets = call.inputs[2], &out = call.outputs[1];
  const Rows rows(call, call.inputs[1], 3);
  const float scale = scale_of(call.inputs[0], rows);
  auto* losses = reinterpret_cast<float*>(call.workspace.data());  // [rows]
  for_rows(call, rows.count, rows.width, [&](std::int64_t row) {
    const RowLoss of_row = loss_of_row(logits, targets, row, rows);
    losses[row] = of_row.loss;
    if (out.data != nullptr) write_gradient(logits, targets, row, rows, of_row.lse, scale, out);
  });
  write_mean(call.outputs[0], losses, rows);
}

constexpr NamedKernel kCrossEntropy[] = {
    {"cross_entropy", cross_entropy_kernel},
    {"cross_entropy_grad", cross_entropy_grad_kernel},
    {"cross_entropy_with_grad", cross_entropy_with_grad_kernel}};

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
