// AdamW whose moments are codes of 8 bits: all tensors in one launch, usually in place.
#include "backends/cuda/kernels.h"
#include "backends/cuda/updates/adamw_8bit.cuh"
#include "ops/adamw_groups.h"

namespace tracestep::cuda {

namespace {

using namespace updates;

constexpr int kThreads = 256;
constexpr int kResident = 4;  // blocks of kThreads threads per multiprocessor
constexpr unsigned kWarps = kThreads / kWarp;

// Coded blocks of 128 elements that a block of threads processes at a time.
constexpr std::int64_t kChunk = kPerWarp * kWarps;
// The most tensors of a launch, whose table must fit into a kernel's parameters with the rates.
constexpr int kMostTensors = 200;
constexpr std::size_t kParameterBytes = 32764;

// The dtypes of weight and gradient (kWide: float32) for which four elements are moved at once.
enum class Pair : std::uint8_t { kOther, kWide, kWideBF16, kWideF16, kBF16 };

struct Row {
  CodedTensor tensor;
  std::int64_t count = 0;
  std::int32_t first_chunk = 0;  // the chunks of earlier rows come before
  Pair pair = Pair::kOther;
};

struct Table {
  Row rows[kMostTensors];
  std::int32_t count = 0, chunks = 0;
};
static_assert(sizeof(Predecessors) + alignof(Table) + sizeof(Table) + sizeof(Rates) <=
              kParameterBytes);

// Updates coded blocks [begin, end) four elements at once; returns the first block left over.
__device__ std::int64_t update_whole(const Row& row, const Factors& f, unsigned warp,
                                     std::int64_t begin, std::int64_t end) {
  if (!f.apply) return begin;
  const auto count = static_cast<unsigned>(end - begin);
  const auto update = [&]<class W, class G>(W, G) {
    Blocks<W, G>(row.tensor, begin).update(f, warp, count);
  };
  switch (row.pair) {
    case Pair::kOther: return begin;
    case Pair::kWide: update(float{}, float{}); break;
    case Pair::kWideBF16: update(float{}, BF16{}); break;
    case Pair::kWideF16: update(float{}, F16{}); break;
    case Pair::kBF16: update(BF16{}, BF16{}); break;
  }
  return end;
}

__global__ void __launch_bounds__(kThreads, kResident)
    adamw_8bit_kernel(Predecessors before, const __grid_constant__ Table table,
                      const __grid_constant__ Rates rates) {
  before.wait();
  const Factors factors = factors_of(rates);
  const unsigned warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);  // the same in all lanes
  for (int chunk = static_cast<int>(blockIdx.x); chunk < table.chunks;
       chunk += static_cast<int>(gridDim.x)) {
    const Row& row = table.rows[row_of(table, chunk)];
    const std::int64_t begin = (chunk - row.first_chunk) * kChunk;
    const std::int64_t all = (row.count + kCodedBlock - 1) / kCodedBlock;
    const std::int64_t end = begin + kChunk < all ? begin + kChunk : all;
    const std::int64_t whole = row.count / kCodedBlock < end ? row.count / kCodedBlock : end;
    std::int64_t block = update_whole(row, factors, warp, begin, whole) + warp;
    for (; block < end; block += kWarps) update_short(row.tensor, factors, block, row.count);
  }
}

void launch_table(const KernelCall& call, const Table& table, const Rates& rates) {
  if (table.chunks == 0) return;
  const void* m = table.rows[0].tensor.m.codes;
  const Grid grid{.blocks = update_blocks(call, m, table.chunks, 1, kResident),
                  .threads = kThreads};
  launch(call, grid, adamw_8bit_kernel, table, rates);
}

Codes codes_of(const TensorRef& codes, const TensorRef& scales, const TensorRef& codes_new,
               const TensorRef& scales_new) {
  return {codes.as<const std::uint8_t>(), scales.as<const float>(), codes_new.as<std::uint8_t>(),
          scales_new.as<float>()};
}

CodedTensor tensor_of(const KernelCall& call, const AdamwGroups& groups, std::size_t index) {
  const TensorRef* in = &call.inputs[groups.first_input(index)];
  const TensorRef* out = &call.outputs[groups.first_output(index)];
  return {.p = Stream(in[0]),
          .g = Stream(in[1]),
          .p_new = Stream(out[0]),
          .shadow = groups.shadowed ? Stream(out[5]) : Stream(),
          .m = codes_of(in[2], in[4], out[1], out[3]),
          .v = codes_of(in[3], in[5], out[2], out[4])};
}

// Returns the dtypes; kOther unless all is in place, four move at once and a shadow has g's dtype.
Pair pair_of(const CodedTensor& t) {
  for (const Codes& c : {t.m, t.v}) {
    const bool is_in_place = c.codes_new == c.codes && c.scales_new == c.scales;
    if (!is_in_place || !is_aligned(c.codes, kFour)) return Pair::kOther;
  }
  const bool is_in_place = t.p_new.data == t.p.data;
  for (const Stream& s : {t.p, t.g, t.shadow}) {
    if (!is_in_place || !s.is_aligned_to(kFour)) return Pair::kOther;
  }
  if (t.shadow.data != nullptr && t.shadow.dtype != t.g.dtype) return Pair::kOther;
  if (t.p.dtype == DType::kBF16) return t.g.dtype == DType::kBF16 ? Pair::kBF16 : Pair::kOther;
  if (t.p.dtype != DType::kF32) return Pair::kOther;
  switch (t.g.dtype) {
    case DType::kBF16: return Pair::kWideBF16;
    case DType::kF16: return Pair::kWideF16;
    default: return Pair::kWide;
  }
}

void adamw_8bit(const KernelCall& call) {
  const auto in = call.inputs;
  const AdamwGroups groups = coded_adamw_groups(call.attrs, in.size());
  const Rates rates =
      rates_of(call, in[0], in[1], groups.scaled ? &in[groups.scale()] : nullptr,
               groups.guarded ? &in[groups.apply()] : nullptr, &in[groups.step_count()]);
  Table table;
  for (std::size_t i = 0; i < groups.count; ++i) {
    const std::int64_t count = in[groups.first_input(i)].count();
    if (count == 0) continue;
    const CodedTensor tensor = tensor_of(call, groups, i);
    table.rows[table.count++] = {
        .tensor = tensor, .count = count, .first_chunk = table.chunks, .pair = pair_of(tensor)};
    table.chunks += static_cast<std::int32_t>(ceil_div(coded_blocks(count), kChunk));
    if (table.count < kMostTensors) continue;
    launch_table(call, table, rates);
    table.count = table.chunks = 0;
  }
  launch_table(call, table, rates);
}

}  // namespace

void add_adamw_8bit_kernels(KernelTable& table) {
  table.add("adamw_8bit", adamw_8bit);
}

}  // namespace tracestep::cuda
