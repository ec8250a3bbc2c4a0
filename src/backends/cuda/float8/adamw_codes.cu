// AdamW that also writes the codes of the updated weights, for the products of the next step
// (float8/refresh_codes.cu checks whether their scale fits).
#include <algorithm>
#include <vector>

#include "backends/cuda/float8/tiles.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/updates/adamw.cuh"
#include "ops/adamw_groups.h"

namespace tracestep::cuda {
namespace {

using namespace float8;
using namespace updates;

constexpr std::size_t kParameterBytes = 32764;

constexpr int kRun = 4;       // elements of a thread side by side: 16 bytes of float32
constexpr int kResident = 2;  // blocks on a multiprocessor
constexpr int kAhead = 2;     // rows of a tile whose instructions are there at once

// A weight whose codes are a part of a matrix of codes: rows of it, and columns of its transpose.
struct Part {
  const void *p, *g, *m, *v;
  void *p_new, *m_new, *v_new;  // each may be null: nobody reads it
  std::uint8_t *codes, *transposed;
  const float* largest;  // the largest magnitude of the block before the update
  std::int32_t rows, columns, leading, first_tile;
};

struct Parts {
  static constexpr int kMost = 320;
  Part at[kMost];
  std::int32_t count, end;  // the tile behind the last one
  DType p, g, m, v;
  float limit, room;
  std::uint32_t* maxima;  // the largest magnitude of each tile, as bits
};
static_assert(sizeof(Predecessors) + alignof(Parts) + sizeof(Parts) + sizeof(Rates) <=
              kParameterBytes);

__device__ __forceinline__ int part_of(const Parts& parts, int tile) {
  int low = 0, high = parts.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (parts.at[middle].first_tile <= tile ? low : high) = middle;
  }
  return low;
}

__device__ __forceinline__ Stream stream_over(const void* data, DType dtype) {
  Stream out;
  out.data = const_cast<void*>(data);
  out.dtype = dtype;
  return out;
}

__device__ __forceinline__ Tensor tensor_of(const Parts& parts, const Part& part) {
  Tensor out;
  out.p = stream_over(part.p, parts.p);
  out.g = stream_over(part.g, parts.g);
  out.m = stream_over(part.m, parts.m);
  out.v = stream_over(part.v, parts.v);
  out.p_new = stream_over(part.p_new, parts.p);
  out.m_new = stream_over(part.m_new, parts.m);
  out.v_new = stream_over(part.v_new, parts.v);
  return out;
}

// Updates a row of a thread's 8 by 8 elements, half of them in each half of the tile, and returns
// them rounded to bfloat16, of which codes are made; zeros after the last column.
__device__ __forceinline__ Pack<BF16, kSide> update_row(const Tensor& t, const Factors& f,
                                                        std::int64_t index, int left) {
  Group<kRun> group[2];
  Pack<BF16, kSide> out = no_elements<BF16>();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = half * (kTile / 2);
    if (column < left) group[half] = load_group<kRun>(t, index + column);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = half * (kTile / 2);
    if (column >= left) continue;
    const Pack<float, kRun> p = update_group<kRun>(t, f, index + column, group[half]);
#pragma unroll
    for (int j = 0; j < kRun; ++j) out.at[half * kRun + j] = from_float<BF16>(p.at[j]);
  }
  return out;
}

// Updates a tile and writes its codes; returns the largest magnitude of this thread's elements.
// Rows are taken one by one, and their codes wait in shared memory: unrolled, the kernel has 140
// KiB of instructions.
__device__ __forceinline__ std::uint32_t update_tile(const Parts& parts, const Part& part,
                                                     const Factors& f, int tile, float inverse) {
  const Tensor t = tensor_of(parts, part);
  const int across = (part.columns + kTile - 1) / kTile, first_row = tile / across * kTile,
            first_column = tile % across * kTile,
            row = first_row + static_cast<int>(threadIdx.x) / kPacks * kSide,
            column = first_column + static_cast<int>(threadIdx.x) % kPacks * kRun;
  __shared__ uint2 own[kSide][kThreads];
  Magnitude<BF16> magnitude;
#pragma unroll kAhead
  for (int i = 0; i < kSide; ++i) {
    const std::int64_t index = std::int64_t{row + i} * part.columns + column;
    const int left = row + i < part.rows ? part.columns - column : 0;
    const Pack<BF16, kSide> w = update_row(t, f, index, left);
    magnitude.take(w);
    const uint2 codes = codes_of<false>(w, inverse);
    own[i][threadIdx.x] = codes;
    if (part.codes == nullptr) continue;
    if (left > 0) *reinterpret_cast<std::uint32_t*>(part.codes + index) = codes.x;
    if (left > kTile / 2) {
      *reinterpret_cast<std::uint32_t*>(part.codes + index + kTile / 2) = codes.y;
    }
  }
  if (part.transposed != nullptr) {
    std::uint32_t words[kSide][2];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      words[i][0] = own[i][threadIdx.x].x;
      words[i][1] = own[i][threadIdx.x].y;
    }
    const Codes to{.transposed = part.transposed,
                   .rows = part.rows,
                   .leading = part.leading,
                   .transposed_in_packs = true};
    store_transposed<kRun>(to, {first_row, first_column, part.columns}, words);
  }
  return magnitude.bits();
}

// Updates one tile per block: blocks with many tiles each would take 2 to 3 % longer in all.
__global__ void __launch_bounds__(kThreads, kResident)
    adamw_codes_kernel(Predecessors before, const __grid_constant__ Parts parts,
                       const __grid_constant__ Rates rates) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const int tile = parts.at[0].first_tile + static_cast<int>(blockIdx.x);
  const Part& part = parts.at[part_of(parts, tile)];
  const float inverse = __fdiv_rn(parts.limit, reach_of(*part.largest, parts.room));
  const std::uint32_t largest = block_max(
      update_tile(parts, part, factors_of(rates), tile - part.first_tile, inverse), scratch);
  if (threadIdx.x == 0) parts.maxima[tile] = largest;
}

// --- found_kernel(): each matrix's largest magnitudes, of its weights before and after the update
struct Finding {
  const float* largest;  // before the update
  std::int32_t first_tile, tiles;
};

struct Findings {
  static constexpr int kMost = 1024;
  Finding at[kMost];
  const std::uint32_t* maxima;
  float* found;  // for each block: the largest magnitude after the update, and before it
};
static_assert(sizeof(Predecessors) + alignof(Findings) + sizeof(Findings) <= kParameterBytes);

__global__ void __launch_bounds__(kThreads)
    found_kernel(Predecessors before, const __grid_constant__ Findings findings) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const Finding& finding = findings.at[blockIdx.x];
  const float now = largest_of(findings.maxima + finding.first_tile, finding.tiles, scratch);
  if (threadIdx.x != 0) return;
  findings.found[2 * blockIdx.x] = now;
  findings.found[2 * blockIdx.x + 1] = *finding.largest;
}

std::int32_t tiles_of(const TensorRef& x) {
  return static_cast<std::int32_t>(quantize_tiles(x.shape[0], x.shape[1]));
}

// Launches adamw_codes_kernel for the parts in the table, and empties the table.
void launch_parts(const KernelCall& call, Parts& parts, const Rates& rates) {
  if (parts.count == 0) return;
  const Grid grid{.blocks = static_cast<unsigned>(parts.end - parts.at[0].first_tile),
                  .threads = kThreads};
  launch(call, grid, adamw_codes_kernel, parts, rates);
  parts.count = 0;
}

// Adds the parts of block `b` to the table, which is launched when full; returns the next tile.
std::int32_t update_block(const KernelCall& call, const AdamwBlocks& blocks, std::size_t b,
                          std::int32_t tile, Parts& parts, const Rates& rates) {
  const auto in = call.inputs, out = call.outputs;
  auto* codes = out[blocks.new_codes(b)].as<std::uint8_t>();
  auto* transposed = out[blocks.new_codes(b) + 1].as<std::uint8_t>();
  const auto leading = static_cast<std::int32_t>(in[blocks.codes(b)].shape[0]);
  for (std::size_t i = 0; i < blocks.parts; ++i) {
    const TensorRef *from = &in[blocks.part(b, i)], *to = &out[blocks.new_part(b, i)];
    if (from->count() == 0) continue;
    parts.at[parts.count++] = {.p = from[0].data,
                               .g = from[1].data,
                               .m = from[2].data,
                               .v = from[3].data,
                               .p_new = to[0].data,
                               .m_new = to[1].data,
                               .v_new = to[2].data,
                               .codes = codes,
                               .transposed = transposed,
                               .largest = in[blocks.largest(b)].as<const float>(),
                               .rows = static_cast<std::int32_t>(from->shape[0]),
                               .columns = static_cast<std::int32_t>(from->shape[1]),
                               .leading = leading,
                               .first_tile = tile};
    tile += tiles_of(*from);
    parts.end = tile;
    if (codes != nullptr) codes += from->count();
    if (transposed != nullptr) transposed += from->shape[0];
    if (parts.count == Parts::kMost) launch_parts(call, parts, rates);
  }
  return tile;
}

void launch_findings(const KernelCall& call, const Findings& findings, std::int32_t count) {
  const Grid grid{.blocks = static_cast<unsigned>(count), .threads = kThreads};
  launch(call, grid, found_kernel, findings);
}

void adamw_codes(const KernelCall& call) {
  const auto in = call.inputs;
  const AdamwBlocks blocks = adamw_blocks(call.attrs, in.size());
  const AdamwGroups& factors = blocks.factors;
  const Rates rates = rates_of(call, in[0], in[1], factors.scaled ? &in[factors.scale()] : nullptr,
                               factors.guarded ? &in[factors.apply()] : nullptr,
                               factors.counted ? &in[factors.step_count()] : nullptr);
  const TensorRef* first = &in[blocks.part(0, 0)];
  auto* const maxima = reinterpret_cast<std::uint32_t*>(call.workspace.data());
  Parts parts{.at = {},
              .count = 0,
              .end = 0,
              .p = first[0].dtype,
              .g = first[1].dtype,
              .m = first[2].dtype,
              .v = first[3].dtype,
              .limit = static_cast<float>(call.attrs.real("largest")),
              .room = static_cast<float>(call.attrs.real("room")),
              .maxima = maxima};
  std::vector<Finding> found;
  std::int32_t tile = 0;
  for (std::size_t b = 0; b < blocks.count; ++b) {
    const std::int32_t begin = tile;
    tile = update_block(call, blocks, b, tile, parts, rates);
    found.push_back({in[blocks.largest(b)].as<const float>(), begin, tile - begin});
  }
  launch_parts(call, parts, rates);
  if (call.outputs[0].data == nullptr) return;
  Findings findings{.at = {}, .maxima = maxima, .found = call.outputs[0].as<float>()};
  for (std::size_t b = 0; b < found.size(); b += Findings::kMost) {
    const std::size_t count = std::min<std::size_t>(found.size() - b, Findings::kMost);
    std::copy_n(found.begin() + static_cast<std::ptrdiff_t>(b), count, findings.at);
    launch_findings(call, findings, static_cast<std::int32_t>(count));
    findings.found += 2 * count;
  }
}

}  // namespace

void add_adamw_codes_kernel(KernelTable& table) {
  table.add("adamw_codes", adamw_codes);
}

}  // namespace tracestep::cuda
