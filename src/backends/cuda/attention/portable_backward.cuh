// The portable backward kernel. One block keeps kRows rows of one side resident and walks over the
// other side: for the gradients of keys and values K and V stay and Q and dO pass by, for that of
// the queries it is the other way round. Probabilities are recomputed from the saved log-sum-exp.
// Nothing is added across blocks, so the result is the same bits every run and no accumulator is
// needed in memory; the price is that scores are computed twice.
// Source: Dao 2023, "FlashAttention-2", Alg. 2.
#pragma once

#include "backends/cuda/attention/portable_forward.cuh"

namespace tracestep::cuda::portable {

// Which results a kernel makes. Where the accumulators of dK and dV do not fit in registers
// together (wide heads), two kernels make them.
enum class Gradient : std::uint8_t { kKeysValues, kKeys, kValues, kQueries };

// Powers of two that undo and redo the scaling of operands: dS = P (dP - delta) is computed as
// P' (grad dP' - level delta), with the exponents of all factors chosen so that no product leaves
// the range of float16.
struct BackwardScaling {
  float c = 1;                // on scores, to exponents of two
  float grad = 1, level = 1;  // see above
  float gradient_factor = 1;  // on the sum of dS' Y
  float value_factor = 1;     // on the sum of P' dO'
  bool is_large = false;      // scores
};

template <class E, Gradient kG>
__device__ __forceinline__ BackwardScaling find_scaling(const BackwardParams& p, int batch_head) {
  BackwardScaling s;
  constexpr int kShift = static_cast<int>(kProbabilityShift<E>);
  s.c = p.scale * kLog2E;
  s.grad = s.level = ldexpf(1, -kShift);
  s.gradient_factor = p.scale;
  s.value_factor = ldexpf(1, -kShift);
  if (p.ranges == nullptr) return s;
  const HeadRange& r = p.ranges[batch_head];
  s.is_large = has_large_scores(p.scale, r);
  const int q = scale_exponent(r.magnitude[kQ]), k = scale_exponent(r.magnitude[kK]);
  const int v = scale_exponent(r.magnitude[kV]), d_o = scale_exponent(r.magnitude[kDO]);
  s.c = ldexpf(s.c, -q - k);
  s.value_factor = ldexpf(1, -kShift - d_o);
  // |dP - delta| <= 2 |dO row| |V row|; 2^15 is the largest power of two in float16.
  const int v_bound = root_exponent(r.squares[kV]) + 1;
  if constexpr (kG == Gradient::kQueries) {
    s.grad = ldexpf(1, -kShift - v_bound - d_o - v + 15);
    s.level = ldexpf(1, -kShift - v_bound + 15);
    s.gradient_factor = ldexpf(p.scale, v_bound - 15 - k);
  } else {
    const int exponent = 15 - v_bound - root_exponent(r.squares[kDO]);
    s.grad = ldexpf(1, exponent - kShift - d_o - v);
    s.level = ldexpf(1, exponent - kShift);
    s.gradient_factor = ldexpf(p.scale, -exponent - q);
  }
  return s;
}

template <int kParts, int kD, int kMT, int kWarps, int kN, Gradient kG, int kShare>
struct BackwardShared {
  static constexpr bool kHasPair = kG != Gradient::kValues;  // dV needs no dP
  static constexpr int kGroups = kWarps / kShare;
  static constexpr int kRows = 16 * kMT * kGroups;
  static constexpr int kPitch = TileLayout<kD>::kPitch;
  static constexpr int kXPlane = kRows * kPitch, kYPlane = kN * kPitch;
  static constexpr int kX = kParts * kXPlane, kY = kParts * kYPlane;
  // lse2, delta and the correction of the queries that pass by.
  static constexpr int kStats = kG == Gradient::kQueries ? 0 : (kParts == 2 ? 3 : 2) * kN * 4;
  static constexpr int kStage = 2 * kY + kStats;
  static constexpr int kFragments = kMT * (kN / 16) * 512;  // of P of a group, and as much of dS
  static constexpr int kExchange = kShare == 1 ? 0 : 2 * kGroups * kFragments;
  static constexpr int kOwnStats = (kHasPair ? 2 : 1) * kX + 2 * kStage + kExchange;  // where
  static constexpr int kOwnBytes = kParts == 2 ? 16 : 8;                              // of a row
  static constexpr int kBytes = kOwnStats + (kG == Gradient::kQueries ? kOwnBytes * kRows : 0);
};

// kShare = 2: two warps have the same rows; each computes the scores of half the rows passing by
// and then, P and dS exchanged through shared memory, half the columns of the results. Wide heads
// leave room for 32 rows a warp only so, and the fewer rows the more often shared memory is read.
template <class E, int kParts, int kD, int kMT, int kWarps, int kN, int kBlocks, Gradient kG,
          int kShare>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    portable_attention_backward_kernel(const __grid_constant__ BackwardParams p) {
  using Shared = BackwardShared<kParts, kD, kMT, kWarps, kN, kG, kShare>;
  constexpr int kRows = Shared::kRows, kThreads = kWarps * 32;
  constexpr int kOwn = kN / kShare, kNT = kOwn / 8;  // rows passing by whose scores are the warp's
  constexpr int kColumns = kD / kShare;
  static_assert(kShare == 1 || (kParts == 1 && kColumns % 16 == 0 && kOwn % 16 == 0));
  constexpr bool kQueries = kG == Gradient::kQueries;
  constexpr bool kValues = kG == Gradient::kValues || kG == Gradient::kKeysValues;
  constexpr bool kFirst = kG != Gradient::kValues;  // dS times y is wanted
  constexpr bool kIsCorrected = kParts == 2;
  constexpr float kShift = kProbabilityShift<E>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int thread = static_cast<int>(threadIdx.x), lane = thread & 31, warp = thread >> 5;
  const int tiles = (p.x.rows + kRows - 1) / kRows;
  const int index = static_cast<int>(blockIdx.x / static_cast<unsigned>(p.batch_heads));
  const int batch_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.batch_heads));
  // Causal: the first keys are seen by most queries, the last queries see most keys.
  const int first = (kQueries && p.causal ? tiles - 1 - index : index) * kRows;
  const int batch = batch_head / p.heads, head = batch_head % p.heads;
  const int begin = !kQueries && p.causal ? ::max(first - p.offset, 0) / kN * kN : 0;
  const int end = kQueries && p.causal ? ::min(p.y.rows, first + kRows + p.offset) : p.y.rows;
  const int steps = end > begin ? (end - begin + kN - 1) / kN : 0;

  const E* y_head = head_start<E>(p.y, batch, head);
  const E* y_pair_head = head_start<E>(p.y_pair, batch, head);
  const std::uint32_t x_tile = shared_address(memory), x_pair_tile = x_tile + Shared::kX;
  const std::uint32_t stages = x_tile + (Shared::kHasPair ? 2 : 1) * Shared::kX;
  const std::int64_t stats_row = static_cast<std::int64_t>(batch_head) * p.query_pitch;
  const auto load_stage = [&](int step) {
    const std::uint32_t stage = stages + (step & 1) * Shared::kStage;
    const int row = begin + step * kN;
    load_tile<kD, kN, kThreads, kParts>(stage, y_head, p.y, row, p.width, thread);
    load_tile<kD, kN, kThreads, kParts>(stage + Shared::kY, y_pair_head, p.y_pair, row, p.width,
                                        thread);
    if constexpr (!kQueries) {
      if (thread < Shared::kStats / 16) {
        const int chunk = thread % (kN / 4), which = thread / (kN / 4);
        const float* from = which == 0 ? p.lse2 : which == 1 ? p.delta : p.correction;
        copy_async(stage + 2 * Shared::kY + thread * 16, from + stats_row + row + chunk * 4, 16);
      }
    }
  };
  load_tile<kD, kRows, kThreads, kParts>(x_tile, head_start<E>(p.x, batch, head), p.x, first,
                                         p.width, thread);
  if constexpr (Shared::kHasPair) {
    load_tile<kD, kRows, kThreads, kParts>(x_pair_tile, head_start<E>(p.x_pair, batch, head),
                                           p.x_pair, first, p.width, thread);
  }
  if (steps > 0) load_stage(0);
  commit_copies();

  const BackwardScaling scaling = find_scaling<E, kG>(p, batch_head);
  const LaneOffsets<kD> lane_offsets(lane);
  const int group = warp / kShare, share = warp % kShare;
  const int warp_rows = group * 16 * kMT, warp_first = first + warp_rows, g = lane >> 2,
            t = lane & 3;
  const std::uint32_t x_rows = x_tile + warp_rows * Shared::kPitch;
  const std::uint32_t x_pair_rows = x_pair_tile + warp_rows * Shared::kPitch;
  float acc[kMT][kFirst ? kColumns / 8 : 1][4] = {};
  float value_acc[kMT][kValues ? kColumns / 8 : 1][4] = {};

  // What is known of the block's own rows when they are queries: lse2, delta times its level and,
  // for two parts, the factor of dP. With one part the row's own power of two is made a factor of
  // P, of which here only dS is made; with two it would be lost in the last bits of a large lse2.
  constexpr int kOwnBytes = Shared::kOwnBytes;
  const std::uint32_t own_stats = x_tile + Shared::kOwnStats;
  if constexpr (kQueries) {
    for (int i = thread; i < kRows; i += kThreads) {
      const std::int64_t row = stats_row + first + i;
      const float exponent = p.ranges != nullptr ? p.exponent[row] : 0;
      const float power = kIsCorrected ? exp2f(-exponent) : 1;
      const std::uint32_t to = own_stats + i * kOwnBytes;
      store_shared(to, __float_as_uint(p.lse2[row] + (kIsCorrected ? 0 : exponent)));
      store_shared(to + 4, __float_as_uint(p.delta[row] * scaling.level * power));
      if (kIsCorrected) store_shared(to + 8, __float_as_uint(scaling.grad * power));
    }
  }
  float own_sum[kMT][2] = {};

#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const LaneOffsets<kD> lanes = kParts == 2 ? lane_offsets.in(step) : lane_offsets;
    wait_for_copies<0>();
    __syncthreads();  // this stage is there for all, and all warps have finished with the other one
    if (step + 1 < steps) load_stage(step + 1);
    commit_copies();
    const int row = begin + step * kN;  // the first one passing by
    if (p.causal && (kQueries ? row > warp_first + p.offset + 16 * kMT - 1
                              : row + p.offset + kN - 1 < warp_first)) {
      continue;  // nothing is visible
    }
    const std::uint32_t stage = stages + (step & 1) * Shared::kStage;
    const std::uint32_t stats = stage + 2 * Shared::kY + share * kOwn * 4;
    const std::uint32_t own_y = stage + share * kOwn * Shared::kPitch;
    const int own_row = row + share * kOwn;

    float s[kMT][kNT][4] = {};
    if (kParts == 2 && scaling.is_large) {
      multiply_rows_rounded<E, kD, kMT, kOwn, Shared::kXPlane, Shared::kYPlane, !kQueries>(
          s, x_rows, own_y, lanes);
    } else {
      multiply_rows<E, kParts, kD, kMT, kOwn, Shared::kXPlane, Shared::kYPlane, !kQueries>(
          s, x_rows, own_y, lanes);
    }
    float2 own[kMT][2] = {};
    const auto load_own = [&] {
#pragma unroll
      for (int i = 0; i < 2 * kMT; ++i) {
        own[i / 2][i % 2] = load_shared_pair(own_stats + (warp_rows + i * 8 + g) * kOwnBytes);
      }
    };
    if constexpr (kQueries) load_own();
#pragma unroll
    for (int n = 0; n < kNT; ++n) {
      float2 lse2 = {}, correction = {};
      if constexpr (!kQueries) lse2 = load_shared_pair(stats + (n * 8 + 2 * t) * 4);
      if constexpr (kIsCorrected && !kQueries) {
        correction = load_shared_pair(stats + (2 * kN + n * 8 + 2 * t) * 4);
      }
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float origin = kQueries ? own[mt][e / 2].x : e % 2 == 0 ? lse2.x : lse2.y;
          s[mt][n][e] = exp2_fast(fmaf(s[mt][n][e], scaling.c, kShift - origin));
          if constexpr (kIsCorrected && !kQueries) {
            s[mt][n][e] *= e % 2 == 0 ? correction.x : correction.y;
          }
        }
      }
    }
    // Keys after the last, and those that a query must not see. (Queries after the last: lse2 is
    // infinite there.)
    const bool is_edge = kQueries && row + kN > p.y.rows;
    if (is_edge || (p.causal && (kQueries ? row + kN - 1 > warp_first + p.offset
                                          : row + p.offset < warp_first + 16 * kMT - 1))) {
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int own = warp_first + mt * 16 + e / 2 * 8 + g,
                      other = own_row + n * 8 + 2 * t + e % 2;
            const bool is_masked =
                p.causal && (kQueries ? other > own + p.offset : own > other + p.offset);
            if (is_masked || (kQueries && other >= p.y.rows)) s[mt][n][e] = 0;
          }
        }
      }
    }
    if constexpr (kIsCorrected && kQueries) {
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int n = 0; n < kNT; ++n) {
          own_sum[mt][0] += s[mt][n][0] + s[mt][n][1];
          own_sum[mt][1] += s[mt][n][2] + s[mt][n][3];
        }
      }
    }
    float one[kMT][2];  // nothing to rescale
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) one[mt][0] = one[mt][1] = 1;
    const std::uint32_t exchange =
        stages + 2 * Shared::kStage + group * 2 * Shared::kFragments;  // of the group: P, then dS
    const auto pass_on = [&](std::uint32_t to, const float(&from)[kMT][kNT][4]) {
      Fragments<kParts, kMT, kOwn> fragments;
      pack_fragments<E>(fragments, from);
#pragma unroll
      for (int k = 0; k < kOwn / 16; ++k) {
#pragma unroll
        for (int mt = 0; mt < kMT; ++mt) {
          store_fragment(to + ((share * (kOwn / 16) + k) * kMT + mt) * 512,
                         fragments.word[0][mt][k], lane);
        }
      }
    };
    if constexpr (kValues && kShare == 2) pass_on(exchange, s);
    if constexpr (kValues && kShare == 1) {
      Fragments<kParts, kMT, kN> fragments;
      pack_fragments<E>(fragments, s);
      multiply_columns<E, kParts, kD, kMT, kN, Shared::kYPlane>(value_acc, fragments,
                                                                stage + Shared::kY, lanes, one);
    }
    if constexpr (kFirst) {
      float ds[kMT][kNT][4] = {};
      multiply_rows<E, kParts, kD, kMT, kOwn, Shared::kXPlane, Shared::kYPlane, !kQueries>(
          ds, x_pair_rows, own_y + Shared::kY, lanes);
      if constexpr (kQueries && kD > 64)
        load_own();  // again: wide heads have no registers to spare
      float own_grad[kMT][2];
#pragma unroll
      for (int i = 0; i < 2 * kMT; ++i) {
        own_grad[i / 2][i % 2] =
            kQueries && kIsCorrected
                ? load_shared_pair(own_stats + (warp_rows + i * 8 + g) * kOwnBytes + 8).x
                : scaling.grad;
      }
#pragma unroll
      for (int n = 0; n < kNT; ++n) {
        float2 level = {};
        if constexpr (!kQueries) {
          level = load_shared_pair(stats + (kN + n * 8 + 2 * t) * 4);
          level.x *= scaling.level;
          level.y *= scaling.level;
        }
#pragma unroll
        for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float minus = kQueries ? own[mt][e / 2].y : e % 2 == 0 ? level.x : level.y;
            ds[mt][n][e] = s[mt][n][e] * fmaf(ds[mt][n][e], own_grad[mt][e / 2], -minus);
          }
        }
      }
      if constexpr (kShare == 1) {
        Fragments<kParts, kMT, kN> fragments;
        pack_fragments<E>(fragments, ds);
        multiply_columns<E, kParts, kD, kMT, kN, Shared::kYPlane>(acc, fragments, stage, lanes,
                                                                  one);
      } else {
        pass_on(exchange + Shared::kFragments, ds);
      }
    }
    if constexpr (kShare == 2) {
      synchronize_pair(group);  // read below, written again after the next barrier of the block
      if constexpr (kValues) {
        multiply_shared_columns<E, kD, kColumns, kMT, kN>(value_acc, exchange, stage + Shared::kY,
                                                          share * kColumns, lanes, lane);
      }
      if constexpr (kFirst) {
        multiply_shared_columns<E, kD, kColumns, kMT, kN>(acc, exchange + Shared::kFragments, stage,
                                                          share * kColumns, lanes, lane);
      }
    }
  }
  wait_for_copies<0>();
  __syncthreads();  // the copies of all have landed: the rows of x serve as scratch now

  float factor[kMT][2];
  const BackwardScaling last =
      find_scaling<E, kG>(p, batch_head);  // registers were short till here
#pragma unroll
  for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[mt][half] = last.gradient_factor;
      if constexpr (!kQueries) continue;
      const std::int64_t row = stats_row + warp_first + mt * 16 + half * 8 + g;
      const float exponent = p.ranges != nullptr ? p.exponent[row] : 0;
      factor[mt][half] *= exp2f(exponent);
      if constexpr (kIsCorrected) {
        float sum = own_sum[mt][half];
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
        const float correction = sum == 0 ? 0 : exp2f(kShift) / sum;
        factor[mt][half] *= correction;
        if (t == 0) p.correction[row] = correction;
      }
    }
  }
  if constexpr (kFirst) {
    store_rows<E, kParts, kD, kColumns, kMT>(p.gradient, batch, head, warp_first, p.x.rows,
                                             share * kColumns, p.width, acc, factor, x_rows, lane);
  }
  if constexpr (kValues) {
    float value_factor[kMT][2];
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
      value_factor[mt][0] = value_factor[mt][1] = last.value_factor;
    }
    store_rows<E, kParts, kD, kColumns, kMT>(p.value_gradient, batch, head, warp_first, p.x.rows,
                                             share * kColumns, p.width, value_acc, value_factor,
                                             x_rows, lane);
  }
}

template <class E, int kParts, int kD, int kMT, int kWarps, int kN, int kBlocks, Gradient kG,
          int kShare = 1>
cudaError_t launch_backward(const BackwardParams& params, cudaStream_t stream) {
  using Shared = BackwardShared<kParts, kD, kMT, kWarps, kN, kG, kShare>;
  constexpr auto kKernel =
      portable_attention_backward_kernel<E, kParts, kD, kMT, kWarps, kN, kBlocks, kG, kShare>;
  if (const cudaError_t status = allow_shared<kKernel>(Shared::kBytes); status != cudaSuccess) {
    return status;
  }
  const unsigned tiles = static_cast<unsigned>((params.x.rows + Shared::kRows - 1) / Shared::kRows);
  const unsigned blocks = tiles * static_cast<unsigned>(params.batch_heads);
  if (blocks == 0) return cudaSuccess;
  kKernel<<<blocks, kWarps * 32, Shared::kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <class E, int kParts, int kD, int kMT, int kWarps, int kN, int kBlocks, Gradient kG,
          int kShare = 1>
inline constexpr Configuration<BackwardParams> kBackward{
    BackwardShared<kParts, kD, kMT, kWarps, kN, kG, kShare>::kBytes,
    launch_backward<E, kParts, kD, kMT, kWarps, kN, kBlocks, kG, kShare>};

}  // namespace tracestep::cuda::portable
