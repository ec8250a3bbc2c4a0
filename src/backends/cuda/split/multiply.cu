// The product by parts: thread blocks of two warpgroups with 64 x kN results each and one warp that
// loads, over tiles handed out in a fixed order.
#include <algorithm>

#include "backends/cuda/attention/hopper_ring.cuh"
#include "backends/cuda/attention/hopper_tiles.cuh"
#include "backends/cuda/attention/ptx.cuh"
#include "backends/cuda/attention/tensor_map.h"
#include "backends/cuda/split/multiply.cuh"
#include "base/integers.h"

namespace tracestep::cuda {
namespace split_product {  // not anonymous: other architectures than Hopper use little of it

constexpr int kM = SplitTilesPlan::kRows, kK = SplitPartsPlan::kBlock;
constexpr int kGroups = kM / 64, kThreads = 128 * (1 + kGroups);

// The operands in float32, from which results that are infinite or NaN are computed again.
struct SplitOperands {
  SplitOperand a, b;
  std::int64_t m, n, k;

  // Returns an element of the product in float32, with infinities and NaN as IEEE has them.
  __device__ __forceinline__ float exact(std::int64_t batch, std::int64_t row,
                                         std::int64_t column) const {
    const std::int64_t a_step = a.is_down ? a.leading : 1, b_step = b.is_down ? b.leading : 1;
    const float* x = a.data + batch * a.batch_stride + row * (a.is_down ? 1 : a.leading);
    const float* w = b.data + batch * b.batch_stride + column * (b.is_down ? 1 : b.leading);
    float sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum = fmaf(x[i * a_step], w[i * b_step], sum);
    return sum;
  }
};

struct SplitParameters {
  CUtensorMap a, b;                  // [batch][part][row][K]
  const float *a_scales, *b_scales;  // [batch][block of K][row]
  std::int64_t a_scale_rows, b_scale_rows;
  SplitOperands from;
  const float* c;  // or null
  float* y;        // the result, or workspace for the sums of shares
  bool has_pairs;  // results can be read and written two at a time
  std::int64_t m, n;
  int row_tiles, column_tiles, tiles;   // the tiles of one matrix down and across; those of all
  int shares, blocks, blocks_of_share;  // K in shares; its blocks, of all and of a share
};

template <int kN_>
struct SplitLayout {
  static constexpr int kN = kN_;
  static constexpr int kStages = 3;
  using A = Tile<kM, kK>;
  using B = Tile<kN, kK>;
  static constexpr int kA = 0, kB = 2 * A::kBytes, kStageBytes = kB + 2 * B::kBytes,
                       kScales = kStages * kStageBytes,  // of A, then of B
      kScaleBytes = 4 * (kM + kN), kFull = kScales + kStages * kScaleBytes,
                       kEmpty = kFull + 8 * kStages,
                       kBytes = kEmpty + 8 * kStages + 1024;  // with room to align to 1024
  static_assert(kBytes <= 232448, "more than a block's shared memory");
};

// A tile of results: its first row and column, its matrix, and its share of K, blocks [begin, end).
struct SplitTile {
  int row, column, batch, share, begin, end;  // blocks of K
};

// Returns tile number `index`; eight rows of tiles are taken together, so that operands stay in L2.
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

// Return the bytes, and the address, of the scales of a tile's rows for one block of K.
__device__ __forceinline__ int scale_bytes(std::int64_t scale_rows, int first, int most) {
  return 4 * static_cast<int>(min(scale_rows - first, std::int64_t{most}));
}
__device__ __forceinline__ const float* scales_of(const float* scales, std::int64_t scale_rows,
                                                  const SplitParameters& p, int batch, int block,
                                                  int first) {
  return scales + (std::int64_t{batch} * p.blocks + block) * scale_rows + first;
}

template <int kN>
__device__ __forceinline__ void produce_parts(const SplitParameters& p, std::uint32_t shared) {
  using Layout = SplitLayout<kN>;
  Ring<Layout::kStages> ring;
  for (int index = static_cast<int>(blockIdx.x); index < p.tiles;
       index += static_cast<int>(gridDim.x)) {
    const SplitTile tile = split_tile<kN>(p, index);
    const int a_bytes = scale_bytes(p.a_scale_rows, tile.row, kM),
              b_bytes = scale_bytes(p.b_scale_rows, tile.column, kN);
#pragma unroll 1
    for (int block = tile.begin; block < tile.end; ++block) {
      const std::uint32_t full = shared + Layout::kFull + 8 * ring.stage;
      const std::uint32_t stage = shared + ring.stage * Layout::kStageBytes;
      barrier_wait(shared + Layout::kEmpty + 8 * ring.stage, ring.parity ^ 1);
      barrier_arrive_expect(full, Layout::kStageBytes + a_bytes + b_bytes);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        load_box(stage + Layout::kA + part * Layout::A::kBytes, &p.a, full, block * kK, tile.row,
                 part, tile.batch);
        load_box(stage + Layout::kB + part * Layout::B::kBytes, &p.b, full, block * kK, tile.column,
                 part, tile.batch);
      }
      const std::uint32_t scales = shared + Layout::kScales + ring.stage * Layout::kScaleBytes;
      load_bytes(scales, scales_of(p.a_scales, p.a_scale_rows, p, tile.batch, block, tile.row),
                 a_bytes, full);
      load_bytes(scales + 4 * kM,
                 scales_of(p.b_scales, p.b_scale_rows, p, tile.batch, block, tile.column), b_bytes,
                 full);
      ring.advance();
    }
  }
}

__device__ __forceinline__ bool is_finite(float x) {
  return fabsf(x) < INFINITY;
}

// Where result number i of a thread lies in its warpgroup's 64 rows of kN columns, as the tensor
// cores leave it (place_of()).
struct ResultPlace {
  int row, column;
};
__device__ __forceinline__ ResultPlace place_of(int thread, int i) {
  return {.row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8,
          .column = i / 4 * 8 + thread % 4 * 2 + i % 2};
}

// Computes again, in float32, this thread's results whose bits are set in `which`, and stores them.
template <int kN, int kWords>
__device__ __noinline__ void store_exact(const SplitParameters& p, SplitTile tile, int first_row,
                                         std::int64_t begin, const std::uint32_t (&which)[kWords]) {
#pragma unroll 1
  for (int i = 0; i < kN / 2; ++i) {
    if ((which[i / 32] >> i % 32 & 1) == 0) continue;
    const ResultPlace place = place_of(static_cast<int>(threadIdx.x) % 128, i);
    const std::int64_t row = first_row + place.row, column = tile.column + place.column;
    const float y = p.from.exact(tile.batch, row, column);
    const std::int64_t at = begin + row * p.n + column;
    p.y[at] = p.c != nullptr ? y + p.c[at] : y;
  }
}

// --- a warpgroup that multiplies -----------------------------------------------------------------
// Multiplies its rows of each tile and adds the products of each block of K to float32 sums.
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

  // Computes tiles. The warpgroups multiply in turns: one uses tensor cores, the other adds sums.
  __device__ __forceinline__ void run() {
    if (group_ == 1) named_arrive(kTurn, 256);
    for (int index = static_cast<int>(blockIdx.x); index < p_.tiles;
         index += static_cast<int>(gridDim.x)) {
      const SplitTile tile = split_tile<kN>(p_, index);
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) total_[i] = 0;
#pragma unroll 1
      for (int block = tile.begin; block < tile.end; ++block) add_block();
      store(tile);
    }
    if (group_ == 0) named_sync(kTurn, 256);
  }

 private:
  static constexpr int kTurn = 1;  // the named barrier of group 0's turn; then that of group 1
  static_assert(kGroups == 2);

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
    named_sync(kTurn + group_, 256);
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
    named_arrive(kTurn + (group_ ^ 1), 256);
    const std::uint32_t scales = shared_ + Layout::kScales + ring_.stage * Layout::kScaleBytes;
    const std::uint32_t rows = scales + 4 * (64 * group_ + place_of(thread(), 0).row);
    const std::uint32_t columns = scales + 4 * (kM + place_of(thread(), 0).column);
    const float of_row[2] = {load_float(rows), load_float(rows + 4 * 8)};
    float2 of_column[kN / 8];
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) of_column[j] = load_float2(columns + 4 * 8 * j);
    wgmma_wait<0>();
    pin(sum_);
    __syncwarp();  // all lanes have read the scales
    if (thread() % 32 == 0) barrier_arrive(shared_ + Layout::kEmpty + 8 * ring_.stage);
    ring_.advance();
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) {
      const float column = i % 2 == 0 ? of_column[i / 4].x : of_column[i / 4].y;
      total_[i] = fmaf(sum_[i] * column, of_row[i / 2 % 2], total_[i]);
    }
  }

  __device__ __forceinline__ void store(const SplitTile& tile) {
    const int first_row = tile.row + group_ * 64;
    const std::int64_t begin = (std::int64_t{p_.shares} * tile.batch + tile.share) * p_.m * p_.n;
    constexpr int kWords = (kN / 2 + 31) / 32;
    std::uint32_t odd[kWords]{};
    std::uint32_t any = 0;
    // Sums of shares are looked at when they are added.
    const auto is_well = [&](int i) { return is_finite(total_[i]) || p_.shares > 1; };
#pragma unroll
    for (int i = 0; i < kN / 2; i += 2) {  // neighbours in a row
      const ResultPlace place = place_of(thread(), i);
      const std::int64_t row = first_row + place.row, column = tile.column + place.column;
      if (row >= p_.m || column >= p_.n) continue;
      const std::int64_t at = begin + row * p_.n + column;
      if (p_.has_pairs && is_well(i) && is_well(i + 1)) [[likely]] {
        const float2 c =
            p_.c != nullptr ? *reinterpret_cast<const float2*>(p_.c + at) : make_float2(0, 0);
        const float2 y = make_float2(total_[i], total_[i + 1]);
        *reinterpret_cast<float2*>(p_.y + at) =
            p_.c != nullptr ? make_float2(y.x + c.x, y.y + c.y) : y;
        continue;
      }
#pragma unroll
      for (int e = i; e < i + 2; ++e) {
        if (e > i && column + 1 >= p_.n) break;
        if (is_well(e)) {
          p_.y[at + e - i] = p_.c != nullptr ? total_[e] + p_.c[at + e - i] : total_[e];
        } else {
          odd[e / 32] |= 1U << e % 32;
          any = 1;
        }
      }
    }
    if (any != 0) [[unlikely]]
      store_exact<kN>(p_, tile, first_row, begin, odd);
  }

  const SplitParameters& p_;
  std::uint32_t shared_;
  int group_;
  Ring<Layout::kStages> ring_;
  float sum_[kN / 2], total_[kN / 2];  // the sums of one block of K; of all before it
};

template <int kN>
__global__ void __launch_bounds__(kThreads, 1)
    split_product_kernel(Predecessors before, const __grid_constant__ SplitParameters p) {
#ifdef TRACESTEP_HOPPER_CODE
  before.let_next_begin();
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
  before.wait();
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

// Sets y to the sum over all shares of K, added in order (+ c).
__global__ void __launch_bounds__(256)
    add_shares_kernel(Predecessors before, const float* sums, int shares, SplitOperands from,
                      std::int64_t count, const float* c, float* y) {
  before.wait();
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t of_matrix = from.m * from.n;
  const std::int64_t matrix = i / of_matrix, place = i - matrix * of_matrix;
  const float* x = sums + matrix * shares * of_matrix + place;
  float sum = 0;
  for (int s = 0; s < shares; ++s) sum += x[s * of_matrix];
  if (!is_finite(sum)) [[unlikely]]
    sum = from.exact(matrix, place / from.n, place % from.n);
  y[i] = c == nullptr ? sum : sum + c[i];
}

}  // namespace split_product

namespace {

using namespace split_product;

cudaError_t map_parts(const SplitParts& source, std::int64_t batch, int box_rows,
                      CUtensorMap& map) {
  const std::int64_t plane = source.rows * source.padded_k;
  return encode_tensor_map({.data = source.parts,
                            .strides = {.batch = 2 * plane, .head = plane, .row = source.padded_k},
                            .dtype = AttentionDType::kF16,
                            .batch = static_cast<int>(batch),
                            .heads = 2,
                            .rows = static_cast<int>(source.rows),
                            .width = static_cast<int>(source.padded_k),
                            .box_rows = box_rows,
                            .box_columns = kK},
                           map);
}

template <int kN>
cudaError_t launch_product(const PartsProduct& product, SplitParameters& p,
                           const LaunchStream& stream) {
  using Layout = SplitLayout<kN>;
  cudaError_t status = map_parts(product.a_parts, product.batch, kM, p.a);
  if (status == cudaSuccess) status = map_parts(product.b_parts, product.batch, kN, p.b);
  if (status != cudaSuccess) return status;
  p.column_tiles = static_cast<int>(ceil_div(p.n, kN));
  p.tiles = p.row_tiles * p.column_tiles * static_cast<int>(product.batch) * p.shares;
  auto* kernel = split_product_kernel<kN>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  const auto blocks = static_cast<unsigned>(std::min(p.tiles, multiprocessor_count()));
  return launch_kernel(stream, {blocks, kThreads, Layout::kBytes}, kernel, p);
}

}  // namespace

cudaError_t multiply_parts(const PartsProduct& product, const LaunchStream& stream) {
  const bool is_shared = product.tiles.shares > 1;
  SplitParameters p{};
  p.a_scales = product.a_parts.scales;
  p.b_scales = product.b_parts.scales;
  p.a_scale_rows = product.a_parts.scale_rows;
  p.b_scale_rows = product.b_parts.scale_rows;
  p.from = {product.a, product.b, product.m, product.n, product.k};
  p.c = is_shared ? nullptr : product.c;
  p.y = is_shared ? product.sums : product.y;
  const auto is_at_a_pair = [](const float* x) {
    return reinterpret_cast<std::uintptr_t>(x) % sizeof(float2) == 0;
  };
  p.has_pairs = product.n % 2 == 0 && is_at_a_pair(p.y) && is_at_a_pair(p.c);
  p.m = product.m;
  p.n = product.n;
  p.row_tiles = static_cast<int>(ceil_div(product.m, kM));
  p.shares = static_cast<int>(product.tiles.shares);
  p.blocks = static_cast<int>(product.a_parts.padded_k / kK);
  p.blocks_of_share = static_cast<int>(ceil_div(p.blocks, p.shares));
  cudaError_t status = cudaSuccess;
  switch (product.tiles.columns) {
    case 96: status = launch_product<96>(product, p, stream); break;
    case 128: status = launch_product<128>(product, p, stream); break;
    default: status = launch_product<160>(product, p, stream); break;
  }
  if (status != cudaSuccess || !is_shared) return status;
  const std::int64_t count = product.m * product.n * product.batch;
  return launch_kernel(stream, {static_cast<unsigned>(ceil_div(count, 256)), 256},
                       add_shares_kernel, product.sums, p.shares, p.from, count, product.c,
                       product.y);
}

}  // namespace tracestep::cuda
