// AdamW in one pass: four streams in, three out (four where a narrow copy is kept), usually in
// place; for one tensor, or for all in one launch. Streams differ in dtype, on which each load
// branches: the kernel is limited by memory, so this costs nothing. And its stochastic rounding
// alone.
#include "backends/cuda/kernels.h"
#include "backends/cuda/updates/adamw.cuh"
#include "ops/adamw_groups.h"

namespace tracestep::cuda {

namespace {

using namespace updates;

constexpr int kThreads = 256;
constexpr int kResident = 4;  // blocks of kThreads threads per multiprocessor
constexpr int kAhead = 2;     // groups of elements in flight per thread
constexpr int kGroup = 4;     // elements: 16 bytes of float32

// Updates groups of N elements: groups first, first + stride, … before `end`.
template <int N>
__device__ void update_groups(const Tensor& t, const Factors& f, std::int64_t first,
                              std::int64_t stride, std::int64_t end) {
  for (; first < end; first += kAhead * stride) {
    Group<N> group[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t i = first + k * stride;
      if (i < end) group[k] = load_group<N>(t, i * N);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t i = first + k * stride;
      if (i < end) update_group<N>(t, f, i * N, group[k]);
    }
  }
}

// --- one tensor --------------------------------------------------------------------------------
// Updates the groups of N elements with numbers in [begin, end).
template <int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Predecessors before, Tensor t, Rates rates, std::int64_t begin, std::int64_t end) {
  before.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = begin + std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  update_groups<N>(t, factors_of(rates), first, stride, end);
}

template <int N>
void launch_adamw(const KernelCall& call, const Tensor& tensor, const Rates& rates,
                  std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  const Grid grid{
      .blocks = update_blocks(call, tensor.m.data, end - begin, kThreads * kAhead, kResident),
      .threads = kThreads};
  launch(call, grid, adamw_kernel<N>, tensor, rates, begin, end);
}

void adamw(const KernelCall& call) {
  const auto in = call.inputs, out = call.outputs;
  const Tensor tensor{.p = Stream(in[0]),
                      .g = Stream(in[1]),
                      .m = Stream(in[2]),
                      .v = Stream(in[3]),
                      .p_new = Stream(out[0]),
                      .m_new = Stream(out[1]),
                      .v_new = Stream(out[2]),
                      .shadow = {}};
  const auto optional = [&](std::size_t i) { return in.size() > i ? &in[i] : nullptr; };
  const Rates rates = rates_of(call, in[4], in[5], optional(6), optional(7), optional(8));
  const std::int64_t count = in[0].count();
  const std::int64_t groups = tensor.is_aligned_to(kGroup) ? count / kGroup : 0;
  launch_adamw<kGroup>(call, tensor, rates, 0, groups);
  launch_adamw<1>(call, tensor, rates, groups * kGroup, count);
}

// --- many tensors ------------------------------------------------------------------------------
// The number of elements in a chunk, which a block processes at a time.
constexpr std::int64_t kChunk = 4 * kAhead * kGroup * kThreads;
// The most tensors of a launch, whose table must fit into a kernel's parameters with the rates.
constexpr int kMostTensors = 220;
constexpr std::size_t kParameterBytes = 32764;

struct Row {
  Tensor tensor;
  std::int64_t count = 0;
  std::int32_t first_chunk = 0;  // the chunks of earlier rows come before
  bool is_aligned = false;       // to kGroup elements
};

struct Table {
  Row rows[kMostTensors];
  std::int32_t count = 0, chunks = 0;
};
static_assert(sizeof(Predecessors) + alignof(Table) + sizeof(Table) + sizeof(Rates) <=
              kParameterBytes);

__global__ void __launch_bounds__(kThreads)
    multi_adamw_kernel(Predecessors before, const __grid_constant__ Table table,
                       const __grid_constant__ Rates rates) {
  before.wait();
  const Factors factors = factors_of(rates);
  for (int chunk = static_cast<int>(blockIdx.x); chunk < table.chunks;
       chunk += static_cast<int>(gridDim.x)) {
    const Row& row = table.rows[row_of(table, chunk)];
    const Tensor tensor = row.tensor;
    const std::int64_t begin = (chunk - row.first_chunk) * kChunk;
    const std::int64_t end = begin + kChunk < row.count ? begin + kChunk : row.count;
    const std::int64_t groups_end = (row.is_aligned ? end : begin) / kGroup;
    update_groups<kGroup>(tensor, factors, begin / kGroup + threadIdx.x, kThreads, groups_end);
    update_groups<1>(tensor, factors, groups_end * kGroup + threadIdx.x, kThreads, end);
  }
}

void launch_table(const KernelCall& call, const Table& table, const Rates& rates) {
  if (table.chunks == 0) return;
  const void* m = table.rows[0].tensor.m.data;
  const Grid grid{.blocks = update_blocks(call, m, table.chunks, 1, kResident),
                  .threads = kThreads};
  launch(call, grid, multi_adamw_kernel, table, rates);
}

Tensor tensor_of(const KernelCall& call, const AdamwGroups& groups, std::size_t index) {
  const TensorRef* in = &call.inputs[groups.first_input(index)];
  const TensorRef* out = &call.outputs[groups.first_output(index)];
  return {.p = Stream(in[0]),
          .g = Stream(in[1]),
          .m = Stream(in[2]),
          .v = Stream(in[3]),
          .p_new = Stream(out[0]),
          .m_new = Stream(out[1]),
          .v_new = Stream(out[2]),
          .shadow = groups.shadowed ? Stream(out[3]) : Stream()};
}

void multi_adamw(const KernelCall& call) {
  const auto in = call.inputs;
  const AdamwGroups groups = adamw_groups(call.attrs, in.size());
  const Rates rates = rates_of(call, in[0], in[1], groups.scaled ? &in[groups.scale()] : nullptr,
                               groups.guarded ? &in[groups.apply()] : nullptr,
                               groups.counted ? &in[groups.step_count()] : nullptr);
  Table table;
  for (std::size_t i = 0; i < groups.count; ++i) {
    const std::int64_t count = in[groups.first_input(i)].count();
    if (count == 0) continue;
    const Tensor tensor = tensor_of(call, groups, i);
    table.rows[table.count++] = {.tensor = tensor,
                                 .count = count,
                                 .first_chunk = table.chunks,
                                 .is_aligned = tensor.is_aligned_to(kGroup)};
    table.chunks += static_cast<std::int32_t>(ceil_div(count, kChunk));
    if (table.count < kMostTensors) continue;
    launch_table(call, table, rates);
    table.count = table.chunks = 0;
  }
  launch_table(call, table, rates);
}

// --- rounding alone: y is x, rounded at random by the bits of weight, gradient and step ----------
__global__ void __launch_bounds__(kThreads)
    stochastic_round_kernel(Predecessors before, Stream x, Stream weight, Stream gradient,
                            Stream step, Stream y, int shift, bool of_weight, std::int64_t count) {
  before.wait();
  const Bits number = bits(Real{scalar_of(step, 0.0f)});
  const auto at = [](const Stream& from, std::int64_t i) {
    return Real{widened<1>(load<1>(from, i), from.dtype).at[0]};
  };
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const Real value = at(x, i);
    const Bits own = scalar::RoundingNoise()(number, bits(at(weight, i)), bits(at(gradient, i)));
    const Bits noise = of_weight ? scalar::WeightNoise()(own) : own;
    const bool rounds = y.dtype == DType::kBF16;
    store<1>(y, i, {rounds ? scalar::StochasticRound()(value, noise >> shift).v : value.v});
  }
}

void stochastic_round(const KernelCall& call) {
  const auto in = call.inputs;
  const std::int64_t count = in[0].count();
  if (count == 0) return;
  const Grid grid{.blocks = blocks_for(call, count, kThreads, kResident, 8), .threads = kThreads};
  const int shift = call.attrs.flag("upper") ? 16 : 0;
  launch(call, grid, stochastic_round_kernel, Stream(in[0]), Stream(in[1]), Stream(in[2]),
         Stream(in[3]), Stream(call.outputs[0]), shift, call.attrs.flag("of_weight"), count);
}

}  // namespace

void add_optimizer_kernels(KernelTable& table) {
  table.add("adamw", adamw);
  table.add("multi_adamw", multi_adamw);
  table.add("stochastic_round", stochastic_round);
}

}  // namespace tracestep::cuda
