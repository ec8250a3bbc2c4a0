// The portable forward kernel: one block computes kWarps * 16 * kMT rows of O and walks over K and
// V in tiles of kN rows, two stages deep, with the running maximum and sum of each row in
// registers. Source: Dao 2023, "FlashAttention-2", Alg. 1.
#pragma once

#include <atomic>

#include "backends/cuda/attention/document_sight.cuh"
#include "backends/cuda/attention/portable_kernels.h"
#include "backends/cuda/attention/portable_tile.cuh"

namespace tracestep::cuda::portable {

inline constexpr float kLog2E = 1.44269504088896340736F, kLn2 = 0.69314718055994530942F;

// The exponent of two by which probabilities are scaled; in float16 it keeps them from subnormals.
template <class E>
inline constexpr float kProbabilityShift = 0;
template <>
inline constexpr float kProbabilityShift<F16> = 14;

// Returns tanh(x), off by 2e-7 at most, by an exponential: several times as fast as the library's.
__device__ __forceinline__ float tanh_by_exp2(float x) {
  const float e = exp2_fast(fminf(fmaxf(x * (2 * kLog2E), -120.0F), 120.0F));
  return __fdividef(e - 1, e + 1);
}

template <int kParts, int kD, int kMT, int kWarps, int kN>
struct ForwardShared {
  static constexpr int kRows = 16 * kMT * kWarps;
  static constexpr int kPitch = TileLayout<kD>::kPitch;
  static constexpr int kQPlane = kRows * kPitch, kPlane = kN * kPitch;
  static constexpr int kQ = kParts * kQPlane, kTile = kParts * kPlane;
  static constexpr int kBytes = kQ + 4 * kTile;  // Q, and two stages of K and V
};

template <class E, int kParts, int kD, int kMT, int kWarps, int kN, int kBlocks>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    portable_attention_forward_kernel(const __grid_constant__ ForwardParams p) {
  using Shared = ForwardShared<kParts, kD, kMT, kWarps, kN>;
  constexpr int kRows = Shared::kRows, kThreads = kWarps * 32, kNT = kN / 8;
  constexpr float kShift = kProbabilityShift<E>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int thread = static_cast<int>(threadIdx.x), lane = thread & 31, warp = thread >> 5;
  // Blocks take one tile of rows of all heads, then the next; causal: first those with most keys.
  const int tiles = (p.q.rows + kRows - 1) / kRows;
  const int index = static_cast<int>(blockIdx.x / static_cast<unsigned>(p.batch_heads));
  const int batch_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.batch_heads));
  const int first = (p.causal ? tiles - 1 - index : index) * kRows;
  const int batch = batch_head / p.heads, head = batch_head % p.heads;
  const int key_head = head / p.group;
  const int keys = p.causal ? ::min(p.k.rows, first + kRows + p.offset) : p.k.rows;
  const DocumentSight documents(p.documents, batch, p.q.rows);
  // Returns the first key that a query sees.
  const auto begin_of = [&](int row) {
    return ::max(0, documents.first_key(row, row + p.offset - p.window + 1));
  };
  const int begin = p.causal ? begin_of(first) / kN * kN : 0;
  const int steps = keys > begin ? (keys - begin + kN - 1) / kN : 0;

  const E* k_head = head_start<E>(p.k, batch, key_head);
  const E* v_head = head_start<E>(p.v, batch, key_head);
  const std::uint32_t q_tile = shared_address(memory), kv_tiles = q_tile + Shared::kQ;
  const auto load_stage = [&](int step) {
    const std::uint32_t k_tile = kv_tiles + (step & 1) * 2 * Shared::kTile;
    const int key = begin + step * kN;
    load_tile<kD, kN, kThreads, kParts>(k_tile, k_head, p.k, key, p.width, thread);
    load_tile<kD, kN, kThreads, kParts>(k_tile + Shared::kTile, v_head, p.v, key, p.width, thread);
  };
  load_tile<kD, kRows, kThreads, kParts>(q_tile, head_start<E>(p.q, batch, head), p.q, first,
                                         p.width, thread);
  if (steps > 0) load_stage(0);
  commit_copies();

  // Scores become exponents of two by one multiplication: 2^(c s - c max). For a negative scale
  // the scores are negated first, so that the largest is that of the scaled ones. c is never 0: 0
  // times a masked score (-infinity) is NaN.
  float c = p.scale * kLog2E, o_factor = 1;
  bool is_large = false;
  if (p.ranges != nullptr) {
    const HeadRange& range = p.ranges[batch_head / p.group];
    is_large = has_large_scores(p.scale, range);
    c = ldexpf(c, -scale_exponent(range.magnitude[kQ]) - scale_exponent(range.magnitude[kK]));
    o_factor = ldexpf(1, -scale_exponent(range.magnitude[kV]));
  }
  // With a cap, products become hyperbolic tangents, which c turns into exponents of two.
  const bool has_cap = p.cap > 0;
  const float to_tangent = has_cap ? c / (p.cap * kLog2E) : 0;
  if (has_cap) c = p.cap * kLog2E;
  const bool is_negative = c < 0;
  c = fmaxf(fabsf(c), 1e-30F);

  const LaneOffsets<kD> lane_offsets(lane);
  const int warp_first = first + warp * 16 * kMT, g = lane >> 2, t = lane & 3;
  const std::uint32_t q_rows = q_tile + warp * 16 * kMT * Shared::kPitch;
  float o[kMT][kD / 8][4] = {};
  float largest[kMT][2], sum[kMT][2] = {};
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) largest[mt][0] = largest[mt][1] = -INFINITY;

#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const LaneOffsets<kD> lanes = kParts == 2 ? lane_offsets.in(step) : lane_offsets;
    wait_for_copies<0>();
    __syncthreads();  // this stage is there for all, and all warps have finished with the other one
    if (step + 1 < steps) load_stage(step + 1);
    commit_copies();
    const int key = begin + step * kN;
    // The last keys that the warp's first and last rows see; windows begin `window` before them.
    const int first_end = warp_first + p.offset, last_end = first_end + 16 * kMT - 1;
    if (p.causal && (key > last_end || key + kN <= begin_of(warp_first))) continue;

    const std::uint32_t k_tile = kv_tiles + (step & 1) * 2 * Shared::kTile;
    float s[kMT][kNT][4] = {};
    if (kParts == 2 && is_large) {
      multiply_rows_rounded<E, kD, kMT, kN, Shared::kQPlane, Shared::kPlane, false>(s, q_rows,
                                                                                    k_tile, lanes);
    } else {
      multiply_rows<E, kParts, kD, kMT, kN, Shared::kQPlane, Shared::kPlane, false>(s, q_rows,
                                                                                    k_tile, lanes);
    }
    if (has_cap) {
#pragma unroll
      for (int i = 0; i < kMT * kNT * 4; ++i) {
        (&s[0][0][0])[i] = tanh_by_exp2((&s[0][0][0])[i] * to_tangent);
      }
    }
    if (is_negative) {
#pragma unroll
      for (int i = 0; i < kMT * kNT * 4; ++i) (&s[0][0][0])[i] = -(&s[0][0][0])[i];
    }
    if ((p.causal && (key + kN - 1 > first_end || key < begin_of(warp_first + 16 * kMT - 1))) ||
        key + kN > p.k.rows) {
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = warp_first + mt * 16 + half * 8 + g;
          const int last = p.causal ? ::min(row + p.offset, p.k.rows - 1) : p.k.rows - 1;
          const int before = p.causal ? begin_of(row) - 1 : -1;
#pragma unroll
          for (int n = 0; n < kNT; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int column = key + n * 8 + 2 * t + e;
              if (column > last || column <= before) s[mt][n][2 * half + e] = -INFINITY;
            }
          }
        }
      }
    }

    float kept[kMT][2];  // what the sums so far are worth under the new maximum
    bool is_rescaled = false;
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float maximum = largest[mt][half];
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
          maximum = fmaxf(maximum, fmaxf(s[mt][n][2 * half], s[mt][n][2 * half + 1]));
        }
        maximum = fmaxf(maximum, __shfl_xor_sync(0xFFFFFFFF, maximum, 1));
        maximum = fmaxf(maximum, __shfl_xor_sync(0xFFFFFFFF, maximum, 2));
        is_rescaled |= maximum != largest[mt][half];
        const float shown = maximum == -INFINITY ? 0 : maximum;  // a row that has seen nothing yet
        // Made from both origins as they were rounded: the errors of large ones then cancel.
        const float origin = fmaf(-shown, c, kShift);
        kept[mt][half] = exp2_fast(origin - fmaf(-largest[mt][half], c, kShift));
        largest[mt][half] = maximum;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = s[mt][n][2 * half + e];
            score = exp2_fast(fmaf(score, c, origin));
            total += score;
          }
        }
        sum[mt][half] = fmaf(sum[mt][half], kept[mt][half], total);
      }
    }
    if (kParts == 1 && __any_sync(0xFFFFFFFF, is_rescaled)) {
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) o[mt][n][e] *= kept[mt][e / 2];
        }
      }
    }
    Fragments<kParts, kMT, kN> probabilities;
    pack_fragments<E>(probabilities, s);
    multiply_columns<E, kParts, kD, kMT, kN, Shared::kPlane>(o, probabilities,
                                                             k_tile + Shared::kTile, lanes, kept);
  }
  wait_for_copies<0>();
  if (steps == 0) __syncthreads();

  float factor[kMT][2];
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[mt][half];
      total += __shfl_xor_sync(0xFFFFFFFF, total, 1);
      total += __shfl_xor_sync(0xFFFFFFFF, total, 2);
      factor[mt][half] = total == 0 ? 0 : o_factor / total;
      const int row = warp_first + mt * 16 + half * 8 + g;
      if (t == 0 && row < p.q.rows && p.lse != nullptr) {
        p.lse[static_cast<std::int64_t>(batch_head) * p.q.rows + row] =
            fmaf(largest[mt][half], c, log2f(total) - kShift) * kLn2;
      }
    }
  }
  store_rows<E, kParts, kD, kD, kMT>(p.o, batch, head, warp_first, p.q.rows, 0, p.width, o, factor,
                                     q_rows, lane);
}

// Allows the kernel more than 48 KiB of shared memory, once for each device.
template <auto kKernel>
cudaError_t allow_shared(int bytes) {
  static std::atomic<std::uint64_t> allowed{0};  // one bit a device
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  const std::uint64_t bit = std::uint64_t{1} << (device & 63);
  if ((allowed.load(std::memory_order_relaxed) & bit) != 0) return cudaSuccess;
  const cudaError_t status =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status == cudaSuccess) allowed.fetch_or(bit, std::memory_order_relaxed);
  return status;
}

// A kernel of one configuration: the shared memory of a block, and how it is launched.
template <class Params>
struct Configuration {
  int bytes;
  cudaError_t (*launch)(const Params& params, cudaStream_t stream);
};

// Configurations of falling size; the first that fits the device is launched. The last one always
// fits.
template <const auto&... kConfigurations>
struct FirstOf {
  template <class Params>
  static cudaError_t launch(const Params& params, cudaStream_t stream) {
    constexpr int kCount = sizeof...(kConfigurations);
    constexpr Configuration<Params> kAll[] = {kConfigurations...};
    static_assert(kAll[kCount - 1].bytes <= kLeastSharedMemory);
    const int most = kCount == 1 ? kLeastSharedMemory : shared_memory_limit();
    int i = 0;
    while (i + 1 < kCount && kAll[i].bytes > most) ++i;
    return kAll[i].launch(params, stream);
  }
};

// Launches the forward kernel of one configuration, on operands of kParts parts of type E.
template <class E, int kParts, int kD, int kMT, int kWarps, int kN, int kBlocks>
cudaError_t launch_forward(const ForwardParams& params, cudaStream_t stream) {
  using Shared = ForwardShared<kParts, kD, kMT, kWarps, kN>;
  constexpr auto kKernel =
      portable_attention_forward_kernel<E, kParts, kD, kMT, kWarps, kN, kBlocks>;
  if (const cudaError_t status = allow_shared<kKernel>(Shared::kBytes); status != cudaSuccess) {
    return status;
  }
  const unsigned tiles = static_cast<unsigned>((params.q.rows + Shared::kRows - 1) / Shared::kRows);
  const unsigned blocks = tiles * static_cast<unsigned>(params.batch_heads);
  if (blocks == 0) return cudaSuccess;
  kKernel<<<blocks, kWarps * 32, Shared::kBytes, stream>>>(params);
  return cudaGetLastError();
}
template <class E, int kParts, int kD, int kMT, int kWarps, int kN, int kBlocks>
inline constexpr Configuration<ForwardParams> kForward{
    ForwardShared<kParts, kD, kMT, kWarps, kN>::kBytes,
    launch_forward<E, kParts, kD, kMT, kWarps, kN, kBlocks>};

}  // namespace tracestep::cuda::portable
