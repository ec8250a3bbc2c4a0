// The product by parts: thread blocks of two warpgroups with 64 x kN results each and one warp that
// loads, over tiles handed out in a fixed order.
#include "backends/cuda/split/product.h"

#include <algorithm>

#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"
#include "backends/cuda/attention/tensor_map.h"
#include "backends/cuda/split/parts.cuh"
#include "base/integers.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace split_product {  // not anonymous: other architectures than Hopper use little of it

constexpr int kM = SplitProductPlan::kTileRows, kK = SplitProductPlan::kBlock;
constexpr int kGroups = kM / 64, kThreads = 128 * (1 + kGroups);

struct SplitParameters {
  CUtensorMap a, b;  // [batch][part][panel of K][row][64]
  SplitOperand a_from, b_from;
  const std::uint32_t *a_scales, *b_scales;
  const float* c;  // or null
  float* y;        // or the sums of shares
  std::int64_t m, n, k;
  int row_tiles, column_tiles, tiles;   // of a matrix twice, of all
  int shares, blocks, blocks_of_share;  // of K
};

template <int kN_>
struct SplitLayout {
  static constexpr int kN = kN_;
  static constexpr int kStages = 3;
  using A = Tile<kM, kK>;
  using B = Tile<kN, kK>;
  static constexpr int kA = 0, kB = 2 * A::kBytes, kStageBytes = kB + 2 * B::kBytes,
                       kFull = kStages * kStageBytes, kEmpty = kFull + 8 * kStages,
                       kBytes = kEmpty + 8 * kStages + 1024;  // with room to align to 1024
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// A tile of results, and its share of K.
struct SplitTile {
  int row, column, batch, share, begin, end;  // blocks of K
};

// Tiles of eight rows of tiles follow each other, so that their operands stay in the L2 cache.
template <int kN>
__device__ __forceinline__ SplitTile split_tile(const SplitParameters& p, int index) {
  constexpr int kRowsTogether = 8;
  const int of_matrix = p.row_tiles * p.column_tiles;
  const int matrix = index / of_matrix, place = index - matrix * of_matrix;
  const int band = place / (kRowsTogether * p.column_tiles), first = band * kRowsTogether;
  const int rows = min(kRowsTogether, p.row_tiles - first);
  const int in_band = place - band * kRowsTogether * p.column_tiles;
  SplitTile tile;
  tile.row = (first + in_band % rows) * kM;
  tile.column = in_band / rows * kN;
  tile.batch = matrix / p.shares;
  tile.share = matrix % p.shares;
  tile.begin = tile.share * p.blocks_of_share;
  tile.end = min(p.blocks, tile.begin + p.blocks_of_share);
  return tile;
}

__device__ __forceinline__ void load_part(std::uint32_t target, const CUtensorMap* map,
                                          std::uint32_t barrier, int row, int panel, int part,
                                          int batch) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(target),
      "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(panel), "r"(part), "r"(batch)
      : "memory");
}

template <int kN>
__device__ __forceinline__ void produce_parts(const SplitParameters& p, std::uint32_t shared) {
  using Layout = SplitLayout<kN>;
  Ring<Layout::kStages> ring;
  for (int index = static_cast<int>(blockIdx.x); index < p.tiles;
       index += static_cast<int>(gridDim.x)) {
    const SplitTile tile = split_tile<kN>(p, index);
#pragma unroll 1
    for (int block = tile.begin; block < tile.end; ++block) {
      const std::uint32_t full = shared + Layout::kFull + 8 * ring.stage;
      const std::uint32_t stage = shared + ring.stage * Layout::kStageBytes;
      barrier_wait(shared + Layout::kEmpty + 8 * ring.stage, ring.parity ^ 1);
      barrier_arrive_expect(full, Layout::kStageBytes);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        load_part(stage + Layout::kA + part * Layout::A::kBytes, &p.a, full, tile.row, block, part,
                  tile.batch);
        load_part(stage + Layout::kB + part * Layout::B::kBytes, &p.b, full, tile.column, block,
                  part, tile.batch);
      }
      ring.advance();
    }
  }
}

__device__ __forceinline__ bool is_finite(std::uint32_t largest) {
  return largest < kInfinityBits;
}

// sum · 2^exponent, rounded once.
__device__ __forceinline__ float scaled(float sum, int exponent) {
  return exponent >= -126 && exponent <= 127 ? sum * power_of_two(exponent) : ldexpf(sum, exponent);
}

// The element in float32, as IEEE has infinities and NaN.
__device__ __forceinline__ float exact_element(const SplitParameters& p, int batch,
                                               std::int64_t row, std::int64_t column) {
  const SplitOperand &a = p.a_from, &b = p.b_from;
  const std::int64_t a_step = a.is_down ? a.leading : 1, b_step = b.is_down ? b.leading : 1;
  const float* x = a.data + batch * a.batch_stride + row * (a.is_down ? 1 : a.leading);
  const float* w = b.data + batch * b.batch_stride + column * (b.is_down ? 1 : b.leading);
  float sum = 0;
  for (std::int64_t k = 0; k < p.k; ++k) sum = fmaf(x[k * a_step], w[k * b_step], sum);
  return sum;
}

// Those with an infinity or NaN in their row or column; whole in the first share, and the others
// add nothing.
template <int kN>
__device__ __noinline__ void store_exact(const SplitParameters& p, SplitTile tile, int group,
                                         std::int64_t begin) {
  const std::int64_t first = tile.row + group * 64, rows = min(p.m - first, std::int64_t{64});
  const std::int64_t columns = min(p.n - tile.column, std::int64_t{kN});
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll 1
  for (int i = 0; i < kN / 2; ++i) {
    const std::int64_t row = warp * 16 + lane / 4 + i % 2 * 8;
    const std::int64_t column = i / 4 * 8 + lane % 4 * 2 + i / 2 % 2;
    if (row >= rows || column >= columns) continue;
    const std::uint32_t a = p.a_scales[tile.batch * p.m + first + row];
    const std::uint32_t b = p.b_scales[tile.batch * p.n + tile.column + column];
    if (is_finite(a) && is_finite(b)) continue;
    const float y =
        tile.share == 0 ? exact_element(p, tile.batch, first + row, tile.column + column) : 0.0F;
    const std::int64_t at = begin + (first + row) * p.n + tile.column + column;
    p.y[at] = p.c != nullptr ? y + p.c[at] : y;
  }
}

// --- a warpgroup that multiplies -----------------------------------------------------------------
template <int kN>
class SplitConsumer {
  using Layout = SplitLayout<kN>;
  using A = typename Layout::A;
  using B = typename Layout::B;
  using Product = Wgmma<__half, kN>;

 public:
  __device__ __forceinline__ SplitConsumer(const SplitParameters& parameters,
                                           std::uint32_t shared_base, int group_index)
      : p_(parameters), shared_(shared_base), group_(group_index) {}

  __device__ __forceinline__ void run() {
    for (int index = static_cast<int>(blockIdx.x); index < p_.tiles;
         index += static_cast<int>(gridDim.x)) {
      const SplitTile tile = split_tile<kN>(p_, index);
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) total_[i] = 0;
#pragma unroll 1
      for (int block = tile.begin; block < tile.end; ++block) add_block();
      store(tile);
    }
  }

 private:
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x) & 127;
  }

  // Adds the products of one block of K: first high · low and low · high, then high · high, since
  // every addition in the tensor cores costs bits in proportion to the sum so far.
  __device__ __forceinline__ void add_block() {
    const std::uint32_t stage = shared_ + ring_.stage * Layout::kStageBytes;
    barrier_wait(shared_ + Layout::kFull + 8 * ring_.stage, ring_.parity);
    const std::uint64_t a = A::along_rows(stage + Layout::kA + group_ * 64 * A::kSwizzle);
    const std::uint64_t b = B::along_rows(stage + Layout::kB);
    constexpr std::uint64_t kLowA = A::kBytes / 16, kLowB = B::kBytes / 16;
    forget(sum_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kK / 16; ++i) {
      const std::uint64_t x = a + A::along_step(i), w = b + B::along_step(i);
      Product::template ss<0, 0>(sum_, x, w + kLowB, i > 0);
      Product::template ss<0, 0>(sum_, x + kLowA, w, 1);
    }
#pragma unroll
    for (int i = 0; i < kK / 16; ++i)
      Product::template ss<0, 0>(sum_, a + A::along_step(i), b + B::along_step(i), 1);
    wgmma_commit();
    wgmma_wait<0>();
    pin(sum_);
    if (thread() % 32 == 0) barrier_arrive(shared_ + Layout::kEmpty + 8 * ring_.stage);
    ring_.advance();
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) total_[i] += sum_[i];
  }

  // Calls visit(row, column, largest of the row of A, largest of that of B, i) for each of this
  // thread's results that exists, which total_[i] is.
  template <class Visit>
  __device__ __forceinline__ void for_each_result(const SplitTile& tile, Visit&& visit) const {
    const int lane = thread() % 32;
    const std::int64_t first = tile.row + group_ * 64 + thread() / 32 * 16 + lane / 4;
    const std::int64_t column = tile.column + lane % 4 * 2;
    const std::uint32_t* columns = p_.b_scales + tile.batch * p_.n;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + 8 * half;
      if (row >= p_.m) break;
      const std::uint32_t largest = __ldg(p_.a_scales + tile.batch * p_.m + row);
#pragma unroll
      for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const std::int64_t at = column + 8 * j + e;
          if (at < p_.n) visit(row, at, largest, __ldg(columns + at), 4 * j + 2 * half + e);
        }
      }
    }
  }

  __device__ __forceinline__ void store(const SplitTile& tile) {
    const std::int64_t matrix = std::int64_t{p_.shares} * tile.batch + tile.share;
    const std::int64_t begin = matrix * p_.m * p_.n;
    const auto write = [&](std::int64_t row, std::int64_t column, float y) {
      const std::int64_t at = begin + row * p_.n + column;
      p_.y[at] = p_.c != nullptr ? y + p_.c[at] : y;
    };
    bool is_all_finite = true;
    for_each_result(
        tile, [&](std::int64_t row, std::int64_t column, std::uint32_t a, std::uint32_t b, int i) {
          if (is_finite(a) && is_finite(b)) [[likely]] {
            write(row, column, scaled(total_[i], scale_exponent(a) + scale_exponent(b)));
          } else {
            is_all_finite = false;
          }
        });
    if (!is_all_finite) [[unlikely]]
      store_exact<kN>(p_, tile, group_, begin);
  }

  const SplitParameters& p_;
  std::uint32_t shared_;
  int group_;
  Ring<Layout::kStages> ring_;
  float sum_[kN / 2], total_[kN / 2];  // of a block of K; of all
};

template <int kN>
__global__ void __launch_bounds__(kThreads, 1)
    split_product_kernel(Predecessors before, const __grid_constant__ SplitParameters p) {
#ifdef TRACESTEP_HOPPER_CODE
  before.wait();
  using Layout = SplitLayout<kN>;
  extern __shared__ unsigned char dynamic[];
  const std::uint32_t shared = (shared_address(dynamic) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    prefetch_map(&p.a);
    prefetch_map(&p.b);
    for (int i = 0; i < Layout::kStages; ++i) {
      barrier_init(shared + Layout::kFull + 8 * i, 1);
      barrier_init(shared + Layout::kEmpty + 8 * i, 4 * kGroups);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < 4) {
    give_registers<24>();
    if (threadIdx.x == 0) produce_parts<kN>(p, shared);
  } else {
    take_registers<240>();
    SplitConsumer<kN> consumer(p, shared, warp / 4 - 1);
    consumer.run();
  }
#endif
}

// y = the sums of all shares, in order (+ c).
__global__ void __launch_bounds__(256)
    add_shares_kernel(Predecessors before, const float* sums, int shares, std::int64_t of_matrix,
                      std::int64_t count, const float* c, float* y) {
  before.wait();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t matrix = i / of_matrix, place = i - matrix * of_matrix;
  const float* x = sums + matrix * shares * of_matrix + place;
  float sum = 0;
  for (int s = 0; s < shares; ++s) sum += x[s * of_matrix];
  y[i] = c == nullptr ? sum : sum + c[i];
}

}  // namespace split_product

namespace {

using namespace split_product;

int multiprocessors() {
  static const int count = [] {
    int device = 0, n = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n;
  }();
  return count;
}

SplitSource source_of(const SplitOperand& from, std::int64_t rows, const SplitProduct& product,
                      const SplitProductPlan& plan, std::int64_t parts, std::int64_t scales,
                      std::int64_t maxima) {
  auto* workspace = static_cast<std::byte*>(product.workspace);
  const auto is_multiple = [&](std::int64_t x) { return x % 4 == 0; };
  SplitSource out;
  out.from = from;
  out.rows = rows;
  out.k = product.k;
  out.padded_k = plan.padded_k;
  out.batch = static_cast<int>(product.batch);
  out.has_vectors = reinterpret_cast<std::uintptr_t>(from.data) % 16 == 0 &&
                    (rows == 1 || is_multiple(from.leading)) &&
                    (product.batch == 1 || is_multiple(from.batch_stride));
  out.parts = reinterpret_cast<__half*>(workspace + parts);
  out.scales = reinterpret_cast<std::uint32_t*>(workspace + scales);
  out.maxima = reinterpret_cast<std::uint32_t*>(workspace + maxima);
  out.chunks = static_cast<int>(ceil_div(product.k, SplitProductPlan::kMaximaRows));
  return out;
}

cudaError_t map_parts(const SplitSource& source, int box_rows, CUtensorMap& map) {
  const std::int64_t plane = source.rows * source.padded_k;
  return encode_tensor_map({.data = source.parts,
                            .strides = {.batch = 2 * plane, .head = plane, .row = source.padded_k},
                            .dtype = AttentionDType::kF16,
                            .batch = source.batch,
                            .heads = 2,
                            .rows = static_cast<int>(source.rows),
                            .width = static_cast<int>(source.padded_k),
                            .box_rows = box_rows,
                            .box_width = kK},
                           map);
}

template <int kN>
cudaError_t launch_product(SplitParameters& p, const SplitSource& a, const SplitSource& b,
                           const LaunchStream& stream) {
  using Layout = SplitLayout<kN>;
  cudaError_t status = map_parts(a, kM, p.a);
  if (status == cudaSuccess) status = map_parts(b, kN, p.b);
  if (status != cudaSuccess) return status;
  p.column_tiles = static_cast<int>(ceil_div(p.n, kN));
  p.tiles = p.row_tiles * p.column_tiles * a.batch * p.shares;
  auto* kernel = split_product_kernel<kN>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  const auto blocks = static_cast<unsigned>(std::min(p.tiles, multiprocessors()));
  return launch_kernel(stream, {blocks, kThreads, Layout::kBytes}, kernel, p);
}

}  // namespace

cudaError_t multiply_split(const SplitProduct& product, const LaunchStream& stream) {
  const SplitProductPlan plan = plan_split_product(product.m, product.n, product.k, product.batch);
  const SplitSource a =
      source_of(product.a, product.m, product, plan, plan.a_parts, plan.a_scales, plan.a_maxima);
  const SplitSource b =
      source_of(product.b, product.n, product, plan, plan.b_parts, plan.b_scales, plan.b_maxima);
  cudaError_t status = split_operands(a, b, stream);
  if (status != cudaSuccess) return status;
  auto* sums = reinterpret_cast<float*>(static_cast<std::byte*>(product.workspace) + plan.sums);
  const bool is_shared = plan.shares > 1;
  SplitParameters p{};
  p.a_from = product.a;
  p.b_from = product.b;
  p.a_scales = a.scales;
  p.b_scales = b.scales;
  p.c = is_shared ? nullptr : product.c;
  p.y = is_shared ? sums : product.y;
  p.m = product.m;
  p.n = product.n;
  p.k = product.k;
  p.row_tiles = static_cast<int>(ceil_div(product.m, kM));
  p.shares = static_cast<int>(plan.shares);
  p.blocks = static_cast<int>(plan.padded_k / kK);
  p.blocks_of_share = static_cast<int>(ceil_div(p.blocks, p.shares));
  switch (plan.tile_columns) {
    case 96: status = launch_product<96>(p, a, b, stream); break;
    case 128: status = launch_product<128>(p, a, b, stream); break;
    default: status = launch_product<160>(p, a, b, stream); break;
  }
  if (status != cudaSuccess || !is_shared) return status;
  const std::int64_t of_matrix = product.m * product.n, count = of_matrix * product.batch;
  return launch_kernel(stream, {static_cast<unsigned>(ceil_div(count, 256)), 256},
                       add_shares_kernel, sums, p.shares, of_matrix, count, product.c, product.y);
}

}  // namespace tracestep::cuda
