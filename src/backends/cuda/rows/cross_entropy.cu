// Cross-entropy of rows of logits: forward reads each row once, backward writes the gradient, which
// may lie over the logits. cross_entropy_with_grad runs the two kernels one after the other.
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/indices.cuh"
#include "backends/cuda/rows/dense_reduce.cuh"
#include "backends/cuda/rows/online_log_sum_exp.cuh"
#include "ops/shared_attrs.h"

namespace tracestep::cuda {
namespace {

// The target whose rows do not count towards the loss, if there is one.
struct Ignored {
  bool any = false;
  std::int64_t target = 0;

  __device__ bool is(std::int64_t other) const { return any && other == target; }
};

// Returns the target to ignore if the call has operand `at`, the number of rows that count.
Ignored ignored_by(const KernelCall& call, std::size_t at) {
  if (call.inputs.size() <= at) return {};
  return {true, call.attrs.integer("ignore_index")};
}
AnyFloat count_of(const KernelCall& call, std::size_t at) {
  return call.inputs.size() > at ? AnyFloat(call.inputs[at]) : AnyFloat();
}

struct LossArgs {
  const void* logits;
  Indices targets;
  float* lse;     // nullptr: not needed
  float* losses;  // one per row
  std::int64_t rows, width;
  std::int64_t columns;  // of a row that count, the first ones
  Ignored ignored;
  RowPlan plan;
  FaultPlace faults;
};

template <class T, bool kWhole>
__global__ void __launch_bounds__(kOnlineThreads, 2)
    cross_entropy_kernel(Predecessors before, LossArgs args) {
  before.wait();
  __shared__ float scratch[2 * kWarp];
  const std::int64_t row = args.plan.row();
  const int lane = args.plan.lane();
  const bool writes = lane == 0 && row < args.rows;
  const T* logits = static_cast<const T*>(args.logits) + row * args.width;
  // The target is used only after the row: waiting for it here would hold up the loads of the row.
  std::int64_t target = writes ? args.targets.at(row) : 0;
  const std::int64_t columns = row < args.rows ? args.columns : 0;
  OnlineSum sum = online_sum<kWhole>(logits, columns, columns, 1.0f, kLog2e, lane, args.plan.lanes);
  float hit = 0.0f;
  if (writes) {  // loads while the lanes combine their sums
    target = args.ignored.is(target) ? kNoIndex : checked_index(target, args.columns, args.faults);
    if (target != kNoIndex) hit = to_float(logits[target]);
  }
  sum.combine(kLog2e, args.plan.lanes, scratch);
  if (!writes) return;
  const float lse = log_of(sum);
  if (args.lse != nullptr) args.lse[row] = lse;
  args.losses[row] = target != kNoIndex ? lse - hit : 0.0f;
}

// Launches the kernel that sets losses[row] = lse - logits[target]; `lse` may be nullptr.
void launch_losses(const KernelCall& call, const TensorRef& logits, const TensorRef& targets,
                   Ignored ignored, float* lse, float* losses) {
  const std::int64_t rows = logits.shape[0], width = logits.shape[1];
  with_floating(logits.dtype, [&]<class T>(T) {
    const RowPlan plan = plan_online_rows<T>(logits.data, rows, width);
    const auto kernel = are_whole<T>(width, logits.data) ? cross_entropy_kernel<T, true>
                                                         : cross_entropy_kernel<T, false>;
    launch(call, {.blocks = plan.blocks(rows), .threads = plan.threads()}, kernel,
           LossArgs{.logits = logits.data,
                    .targets = Indices(targets),
                    .lse = lse,
                    .losses = losses,
                    .rows = rows,
                    .width = width,
                    .columns = ops::loss_columns(call.attrs, width),
                    .ignored = ignored,
                    .plan = plan,
                    .faults = faults_of(call)});
  });
}

struct DividedBy {
  AnyFloat count;
  __device__ float operator()(float x) const { return x / count.at(0); }
};

void launch_mean(const KernelCall& call, const float* losses, std::int64_t rows, AnyFloat count,
                 const TensorRef& loss) {
  if (loss.data == nullptr) return;
  if (count.data != nullptr) {
    return sum_partials(call, losses, rows, loss.as<float>(), DividedBy{count});
  }
  sum_partials(call, losses, rows, loss.as<float>(), Scaled{1.0f / static_cast<float>(rows)});
}

void cross_entropy(const KernelCall& call) {
  const TensorRef& logits = call.inputs[0];
  auto* losses = reinterpret_cast<float*>(call.workspace.data());
  launch_losses(call, logits, call.inputs[1], ignored_by(call, 2), call.outputs[1].as<float>(),
                losses);
  launch_mean(call, losses, logits.shape[0], count_of(call, 2), call.outputs[0]);
}

// --- gradient, by blocks of up to kGradientThreads threads ------------------------------------
constexpr unsigned kGradientThreads = 256;
// The number of blocks that a multiprocessor runs: as many as the registers that packs take allow.
template <int kCount, bool kWhole>
constexpr int kGradientBlocks = kCount == 4 && kWhole ? 5 : 4;

struct GradientArgs {
  AnyFloat dloss;
  const void* logits;
  Indices targets;
  AnyFloat lse;
  void* dlogits;  // may be the storage of the logits
  std::int64_t rows, width;
  std::int64_t columns;  // of a row that count; the gradient of the others is 0
  Ignored ignored;
  AnyFloat count;  // no data: 1 / inverse_rows
  float inverse_rows;
  RowPlan plan;
  FaultPlace faults;
};

// Computes p·scale, or (p - 1)·scale for the target; p = exp(x - lse). Exponents are multiply-adds
// in base 2; the rounding error of lse·log2(e), common to a row, is corrected by the row's scale.
struct RowGradient {
  float shift, scale, one;

  __device__ RowGradient(float lse, float row_scale) : shift(lse * kLog2e) {
    float lost = fmaf(lse, kLog2e, -shift) * kLn2;
    if (!(fabsf(lost) < 1.0f)) lost = 0.0f;  // infinities
    scale = row_scale * (1.0f - lost);
    one = 1.0f + lost;
  }

  // Returns the gradient of a pack. `hit`: the target's index in the pack; out of range if outside.
  template <class T>
  __device__ RowPack<T> operator()(const RowPack<T>& logits, int hit) const {
    constexpr int kSize = kPack<T>;
    float p[kSize];
    logits.floats(p);
#pragma unroll
    for (int i = 0; i < kSize; ++i) p[i] = fast_exp2(fmaf(p[i], kLog2e, -shift));
    if (static_cast<unsigned>(hit) < kSize) {  // one pack of the row: all others skip this
#pragma unroll
      for (int i = 0; i < kSize; ++i) p[i] -= i == hit ? one : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) p[i] *= scale;
    return RowPack<T>::rounded(p);
  }
};

// Computes the gradient. blockIdx.y and z number the parts of a long row. Packs are aligned in the
// logits. It has no loop over parts: values kept for all turns would delay a row's first loads.
template <class T, int kCount, bool kWhole>
__global__ void __launch_bounds__(kGradientThreads, kGradientBlocks<kCount, kWhole>)
    cross_entropy_grad_kernel(Predecessors before, GradientArgs args) {
  before.wait();
  constexpr int kSize = kPack<T>;
  const std::int64_t row = args.plan.row();
  if (row >= args.rows) return;
  const T* logits = static_cast<const T*>(args.logits) + row * args.width;
  T* dlogits = static_cast<T*>(args.dlogits) + row * args.width;
  const int shift = row_shift<kWhole>(logits);
  const bool aligned = pack_shift(dlogits) == shift;
  const int first = args.plan.lane() * kSize, step = args.plan.lanes * kSize;
  const int part = kCount * step;
  const std::int64_t begin = part * (std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y);
  const RowRange<kWhole> range(shift, begin, args.columns, args.width);
  if (first >= range.high) return;
  RowPack<T> packs[kCount];
  load_row(logits - shift + begin, first, step, range, T{}, packs);
  // These are read while the packs are on their way.
  const std::int64_t target = args.targets.at(row);
  const bool is_ignored = args.ignored.is(target);
  const float inverse = args.count.data == nullptr ? args.inverse_rows : 1.0f / args.count.at(0);
  const RowGradient gradient(args.lse.at(row), args.dloss.at(0) * inverse);
  const std::int64_t index =
      is_ignored ? kNoIndex : checked_index(target, args.columns, args.faults);
  const std::int64_t hit = index + shift - begin;
  const int near = hit >= 0 && hit < part ? static_cast<int>(hit) : -1;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const int at = first + k * step;
    if (at >= range.high) break;
    RowPack<T> pack = gradient(packs[k], near - at);
    if (is_ignored || at + kSize > range.visible) {
      pack.fill_from(is_ignored ? 0 : range.visible - at, T{});
    }
    store_row_pack(dlogits - shift + begin, at, range, aligned, pack);
  }
}

void launch_gradient(const KernelCall& call, const TensorRef& dloss, const TensorRef& logits,
                     const TensorRef& targets, AnyFloat lse, std::size_t count,
                     const TensorRef& dlogits) {
  constexpr std::int64_t kMostY = 65535;
  const std::int64_t rows = logits.shape[0], width = logits.shape[1];
  GradientArgs args{.dloss = AnyFloat(dloss),
                    .logits = logits.data,
                    .targets = Indices(targets),
                    .lse = lse,
                    .dlogits = dlogits.data,
                    .rows = rows,
                    .width = width,
                    .columns = ops::loss_columns(call.attrs, width),
                    .ignored = ignored_by(call, count),
                    .count = count_of(call, count),
                    .inverse_rows = 1.0f / static_cast<float>(rows),
                    .plan = {},
                    .faults = faults_of(call)};
  if (width == 0) return;
  with_floating(logits.dtype, [&]<class T>(T) {
    // Threads of long rows have more packs in flight while they wait for the row's target and lse.
    // Parts are equal: a short last one would leave most of its block's threads with nothing.
    const std::int64_t packs = packs_of_rows<T>(logits.data, width);
    const bool whole = are_whole<T>(width, logits.data, dlogits.data);
    const int held = whole && packs > 4 * kGradientThreads ? 8 : 4;
    const std::int64_t parts = ceil_div(packs, held * kGradientThreads);
    args.plan = plan_rows(ceil_div(packs, parts), held, kGradientThreads);
    const auto kernel = !whole      ? cross_entropy_grad_kernel<T, 4, false>
                        : held == 4 ? cross_entropy_grad_kernel<T, 4, true>
                                    : cross_entropy_grad_kernel<T, 8, true>;
    launch(call,
           {.blocks = args.plan.blocks(rows),
            .threads = args.plan.threads(),
            .blocks_y = static_cast<unsigned>(std::min(parts, kMostY)),
            .blocks_z = static_cast<unsigned>(ceil_div(parts, kMostY))},
           kernel, args);
  });
}

void cross_entropy_grad(const KernelCall& call) {
  launch_gradient(call, call.inputs[0], call.inputs[1], call.inputs[2], AnyFloat(call.inputs[3]), 4,
                  call.outputs[0]);
}

// Computes losses, then gradients, which find the logits in the L2 cache as far as it holds them.
void cross_entropy_with_grad(const KernelCall& call) {
  const TensorRef &logits = call.inputs[1], &targets = call.inputs[2], &dlogits = call.outputs[1];
  const std::int64_t rows = logits.shape[0];
  auto* losses = reinterpret_cast<float*>(call.workspace.data());
  float* sums = losses + rows;
  launch_losses(call, logits, targets, ignored_by(call, 3), sums, losses);
  AnyFloat lse;
  lse.data = sums;
  if (dlogits.data != nullptr) {
    launch_gradient(call, call.inputs[0], logits, targets, lse, 3, dlogits);
  }
  launch_mean(call, losses, rows, count_of(call, 3), call.outputs[0]);
}

}  // namespace

void add_cross_entropy_kernels(KernelTable& table) {
  table.add("cross_entropy", cross_entropy);
  table.add("cross_entropy_grad", cross_entropy_grad);
  table.add("cross_entropy_with_grad", cross_entropy_with_grad);
}

}  // namespace tracestep::cuda
