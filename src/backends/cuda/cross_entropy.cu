// Cross-entropy of rows of logits: forward reads each row once, backward writes the gradient, which
// may lie over the logits.
#include "backends/cuda/dense_reduce.cuh"
#include "backends/cuda/indices.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/online.cuh"

namespace tracestep::cuda {
namespace {

struct LossArgs {
  const void* logits;
  Indices targets;
  float* lse;     // nullptr: nobody reads it
  float* losses;  // one per row
  std::int64_t rows, width;
  int lanes;
  FaultPlace faults;
};

template <class T>
__global__ void __launch_bounds__(kOnlineThreads) cross_entropy_kernel(LossArgs args) {
  __shared__ float scratch[2 * kWarp];
  const int rows_per_block = static_cast<int>(blockDim.x) / args.lanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / args.lanes;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const bool writes = lane == 0 && row < args.rows;
  const T* logits = static_cast<const T*>(args.logits) + row * args.width;
  std::int64_t target = kNoIndex;
  float hit = 0.0f;
  if (writes) {  // early, so that nobody waits for it at the end
    target = checked_index(args.targets.at(row), args.width, args.faults);
    if (target != kNoIndex) hit = to_float(logits[target]);
  }
  const std::int64_t columns = row < args.rows ? args.width : 0;
  const OnlineSum sum =
      online_sum(logits, columns, columns, 1.0f, kLog2e, lane, args.lanes, scratch);
  if (!writes) return;
  const float lse = log_of(sum);
  if (args.lse != nullptr) args.lse[row] = lse;
  args.losses[row] = target != kNoIndex ? lse - hit : 0.0f;
}

void cross_entropy(const KernelCall& call) {
  const TensorRef &logits = call.inputs[0], &loss = call.outputs[0], &lse = call.outputs[1];
  const std::int64_t rows = logits.shape[0], width = logits.shape[1];
  auto* losses = reinterpret_cast<float*>(call.workspace.data());
  with_floating(logits.dtype, [&]<class T>(T) {
    const RowPlan plan = plan_online_rows<T>(logits.data, rows, width);
    launch(call, {.blocks = plan.blocks(rows), .threads = plan.threads()}, cross_entropy_kernel<T>,
           LossArgs{.logits = logits.data,
                    .targets = Indices(call.inputs[1]),
                    .lse = lse.as<float>(),
                    .losses = losses,
                    .rows = rows,
                    .width = width,
                    .lanes = plan.lanes,
                    .faults = faults_of(call)});
  });
  if (loss.data == nullptr) return;
  sum_partials(call, losses, rows, loss.as<float>(), Scaled{1.0f / static_cast<float>(rows)});
}

// --- gradient ---------------------------------------------------------------------------------
constexpr unsigned kGradientThreads = 256;
constexpr int kGradientPacks = 4;  // in flight per thread

struct GradientArgs {
  AnyFloat dloss;
  const void* logits;
  Indices targets;
  AnyFloat lse;
  void* dlogits;  // may be the storage of the logits
  std::int64_t rows, width;
  float inverse_rows;
  int lanes;
  FaultPlace faults;
};

// blockIdx.y: which part of a long row. The packs are aligned in the logits.
template <class T>
__global__ void __launch_bounds__(kGradientThreads) cross_entropy_grad_kernel(GradientArgs args) {
  constexpr int kSize = kPack<T>;
  const int rows_per_block = static_cast<int>(blockDim.x) / args.lanes;
  const std::int64_t row = std::int64_t{blockIdx.x} * rows_per_block + threadIdx.x / args.lanes;
  if (row >= args.rows) return;
  const T* logits = static_cast<const T*>(args.logits) + row * args.width;
  T* dlogits = static_cast<T*>(args.dlogits) + row * args.width;
  const int shift = pack_shift(logits);
  const bool aligned = pack_shift(dlogits) == shift;
  const std::int64_t step = std::int64_t{args.lanes} * kSize;
  const std::int64_t lane = static_cast<int>(threadIdx.x) % args.lanes;
  const std::int64_t first = blockIdx.y * kGradientPacks * step + lane * kSize - shift;
  std::int64_t target = 0;
  float lse = 0.0f, scale = 0.0f;
  bool is_known = false;  // they are read while the first packs are on their way
  for (std::int64_t begin = first; begin < args.width; begin += gridDim.y * kGradientPacks * step) {
    Pack<T, kSize> packs[kGradientPacks];
    load_row(logits, Packs<std::int64_t>{begin, step}, args.width, args.width, true, T{}, packs);
    if (!is_known) {
      target = checked_index(args.targets.at(row), args.width, args.faults);
      lse = args.lse.at(row);
      scale = args.dloss.at(0) * args.inverse_rows;
      is_known = true;
    }
#pragma unroll
    for (int k = 0; k < kGradientPacks; ++k) {
      const std::int64_t at = begin + k * step, hit_at = target - at;
      const int hit = hit_at >= 0 && hit_at < kSize ? static_cast<int>(hit_at) : -1;
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        const float p = fast_exp2((to_float(packs[k].at[i]) - lse) * kLog2e);
        packs[k].at[i] = from_float<T>((i == hit ? p - 1.0f : p) * scale);
      }
      store_row_pack(dlogits, at, args.width, aligned, packs[k]);
    }
  }
}

void cross_entropy_grad(const KernelCall& call) {
  constexpr std::int64_t kMostBlocksPerRow = 65535;
  const TensorRef &logits = call.inputs[1], &dlogits = call.outputs[0];
  const std::int64_t rows = logits.shape[0], width = logits.shape[1];
  GradientArgs args{.dloss = AnyFloat(call.inputs[0]),
                    .logits = logits.data,
                    .targets = Indices(call.inputs[2]),
                    .lse = AnyFloat(call.inputs[3]),
                    .dlogits = dlogits.data,
                    .rows = rows,
                    .width = width,
                    .inverse_rows = 1.0f / static_cast<float>(rows),
                    .lanes = 1,
                    .faults = faults_of(call)};
  with_floating(logits.dtype, [&]<class T>(T) {
    const std::int64_t packs = packs_of_rows<T>(logits.data, width);
    const RowPlan plan = plan_rows(packs, kGradientPacks, kGradientThreads);
    args.lanes = plan.lanes;
    const std::int64_t blocks_per_row = ceil_div(packs, kGradientPacks * plan.lanes);
    launch(call,
           {.blocks = plan.blocks(rows),
            .threads = plan.threads(),
            .blocks_y = static_cast<unsigned>(std::min(blocks_per_row, kMostBlocksPerRow))},
           cross_entropy_grad_kernel<T>, args);
  });
}

}  // namespace

void add_cross_entropy_kernels(KernelTable& table) {
  table.add("cross_entropy", cross_entropy);
  table.add("cross_entropy_grad", cross_entropy_grad);
}

}  // namespace tracestep::cuda
