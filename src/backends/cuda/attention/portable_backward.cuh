// The portable backward kernel. One block keeps kRows rows of one side resident and walks over the
// other side: for the gradients of keys and values K and V stay and Q and dO pass by, of one head
// after the other that shares them; for that of the queries it is the other way round.
// Probabilities are recomputed from the saved log-sum-exp. Nothing is added across blocks, so the
// result is the same bits every run and no accumulator is needed in memory; the price is that
// scores are computed twice. Source: Dao 2023, "FlashAttention-2", Alg. 2.
#pragma once

#include "backends/cuda/attention/portable_backward_rows.cuh"

namespace tracestep::cuda::portable {

// Does the work of one warp of a block.
template <class Traits>
class BackwardWarp {
  using T = typename Traits::T;
  using Shared = BackwardShared<Traits>;
  static constexpr int kParts = Traits::kParts, kD = Traits::kD, kMT = Traits::kMT;
  static constexpr int kN = Traits::kN, kNT = Traits::kNT, kOwn = Traits::kOwn;
  static constexpr int kShare = Traits::kShare, kColumns = Traits::kColumns;
  static constexpr bool kQueries = Traits::kQueries, kValues = Traits::kValues;
  static constexpr bool kFirst = Traits::kFirst, kIsCorrected = Traits::kIsCorrected;
  using Lanes = LaneOffsets<kD>;
  using Scores = float[kMT][kNT][4];
  using RowFactors = float[kMT][2];

  // The rows of one stage: `row` is the first, own_row the first whose scores this warp computes.
  struct Passing {
    int row, own_row;
    std::uint32_t stage, own_y, own_stats;
  };

 public:
  __device__ __forceinline__ BackwardWarp(const BackwardParams& params, std::uint32_t memory)
      : p_(params),
        tile_(params),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        y_head_(head_start<T>(params.y, tile_.batch, tile_.first_y_head(params))),
        y_pair_head_(head_start<T>(params.y_pair, tile_.batch, tile_.first_y_head(params))),
        lane_offsets_(thread_ & 31) {
    const int warp = thread_ >> 5;
    lane_ = thread_ & 31;
    group_ = warp / kShare;
    share_ = warp % kShare;
    warp_rows_ = group_ * Traits::kWarpRows;
    warp_first_ = tile_.first + warp_rows_;
    stats_row_ = static_cast<std::int64_t>(tile_.first_query_head(params)) * params.query_pitch;
  }

  __device__ __forceinline__ void run() {
    load_resident();
    if (tile_.steps > 0) load_stage(0);
    commit_copies();
    scaling_ = find_scaling<T, Traits::kGradient>(p_, tile_.batch_head);
    if constexpr (kQueries) keep_own_statistics();
    walk_head();
    if constexpr (!kQueries) {
#pragma unroll 1
      for (int head = 1; head < p_.group; ++head) {
        go_to_next_head();
        walk_head();
      }
    }
    wait_for_copies<0>();
    __syncthreads();  // the copies of all have landed: the rows of x serve as scratch now
    finish();
  }

 private:
  __device__ __forceinline__ std::uint32_t x_rows() const {
    return memory_ + warp_rows_ * Shared::kPitch;
  }
  __device__ __forceinline__ std::uint32_t own_stats() const {
    return memory_ + Shared::kOwnStats;
  }

  // --- loads: once the block's own rows, then in stages rows of the other side, which pass by ----
  __device__ __forceinline__ void load_resident() {
    load_tile<kD, Traits::kRows, Traits::kThreads, kParts>(
        memory_, head_start<T>(p_.x, tile_.batch, tile_.head), p_.x, tile_.first, p_.width,
        thread_);
    if constexpr (kFirst) {
      load_tile<kD, Traits::kRows, Traits::kThreads, kParts>(
          memory_ + Shared::kX, head_start<T>(p_.x_pair, tile_.batch, tile_.head), p_.x_pair,
          tile_.first, p_.width, thread_);
    }
  }

  __device__ __forceinline__ void load_stage(int step) {
    const std::uint32_t stage = memory_ + Shared::kStages + (step & 1) * Shared::kStage;
    const int row = tile_.begin + step * kN;
    load_tile<kD, kN, Traits::kThreads, kParts>(stage, y_head_, p_.y, row, p_.width, thread_);
    load_tile<kD, kN, Traits::kThreads, kParts>(stage + Shared::kY, y_pair_head_, p_.y_pair, row,
                                                p_.width, thread_);
    if constexpr (!kQueries) {
      if (thread_ < Shared::kStats / 16) {
        const int chunk = thread_ % (kN / 4), which = thread_ / (kN / 4);
        const float* from = which == 0 ? p_.lse2 : which == 1 ? p_.delta : p_.correction;
        copy_async(stage + 2 * Shared::kY + thread_ * 16, from + stats_row_ + row + chunk * 4, 16);
      }
    }
  }

  // Stores statistics of the block's own rows if these are queries: lse2, delta times its level
  // and, for two parts, the factor of dP. With one part, the row's own exponent is added to lse2,
  // which scales P, and P only goes into dS here; with two parts the sum would round a large lse2.
  __device__ __forceinline__ void keep_own_statistics() {
    for (int i = thread_; i < Traits::kRows; i += Traits::kThreads) {
      const std::int64_t row = stats_row_ + tile_.first + i;
      const float exponent = p_.ranges != nullptr ? p_.exponent[row] : 0;
      const float power = kIsCorrected ? exp2f(-exponent) : 1;
      const std::uint32_t to = own_stats() + i * Shared::kOwnBytes;
      store_shared(to, __float_as_uint(p_.lse2[row] + (kIsCorrected ? 0 : exponent)));
      store_shared(to + 4, __float_as_uint(p_.delta[row] * scaling_.level * power));
      if (kIsCorrected) store_shared(to + 8, __float_as_uint(scaling_.grad * power));
    }
  }

  // --- walk_head() takes the rows of one head that pass by, in stages of kN rows -----------------
  __device__ __forceinline__ void walk_head() {
#pragma unroll 1
    for (int step = 0; step < tile_.steps; ++step) {
      const Lanes lanes = kParts == 2 ? lane_offsets_.in(step) : lane_offsets_;
      wait_for_copies<0>();
      __syncthreads();  // this stage is there for all, and all warps are done with the other one
      if (step + 1 < tile_.steps) load_stage(step + 1);
      commit_copies();
      const int row = tile_.begin + step * kN;
      if (tile_.sees_any(p_, warp_first_, row)) walk(passing_at(step, row), lanes);
    }
  }

  __device__ __forceinline__ void go_to_next_head() {
    y_head_ += p_.y.strides.head;
    y_pair_head_ += p_.y_pair.strides.head;
    stats_row_ += p_.query_pitch;
    __syncthreads();  // all warps are done with both stages
    if (tile_.steps > 0) load_stage(0);
    commit_copies();
  }

  // --- one stage: passing_at() returns its rows and addresses, walk() computes with them ---------
  __device__ __forceinline__ Passing passing_at(int step, int row) const {
    const std::uint32_t stage = memory_ + Shared::kStages + (step & 1) * Shared::kStage;
    return {row, row + share_ * kOwn, stage, stage + share_ * kOwn * Shared::kPitch,
            stage + 2 * Shared::kY + share_ * kOwn * 4};
  }

  __device__ __forceinline__ void walk(const Passing& y, const Lanes& lanes) {
    Scores s = {};
    float2 own[kMT][2] = {};
    multiply_scores(s, y, lanes);
    if (scaling_.to_tangent != 0) take_tangents(s);
    if constexpr (kQueries) load_own(own);
    exponentiate(s, y, own);
    mask(s, y);
    if constexpr (kIsCorrected && kQueries) add_up(s);
    if constexpr (kValues) give_values(s, y, lanes);
    if constexpr (kFirst) {
      Scores ds = {};
      multiply_rows<T, kParts, kD, kMT, kOwn, Shared::kXPlane, Shared::kYPlane, !kQueries>(
          ds, x_rows() + Shared::kX, y.own_y + Shared::kY, lanes);  // dP
      if constexpr (kQueries && kD > 64) load_own(own);  // again: registers are scarce there
      differentiate(ds, s, y, own);
      give_gradient(ds, y, lanes);
    }
    if constexpr (kShare == 2) add_exchanged(y, lanes);
  }

  __device__ __forceinline__ void multiply_scores(Scores& s, const Passing& y, const Lanes& lanes) {
    if (kParts == 2 && scaling_.is_large) {
      multiply_rows_rounded<T, kD, kMT, kOwn, Shared::kXPlane, Shared::kYPlane, !kQueries>(
          s, x_rows(), y.own_y, lanes);
    } else {
      multiply_rows<T, kParts, kD, kMT, kOwn, Shared::kXPlane, Shared::kYPlane, !kQueries>(
          s, x_rows(), y.own_y, lanes);
    }
  }

  // Loads lse2 and delta of the lane's own queries.
  __device__ __forceinline__ void load_own(float2 (&own)[kMT][2]) const {
#pragma unroll
    for (int i = 0; i < 2 * kMT; ++i) {
      own[i / 2][i % 2] = load_shared_pair(own_stats() + own_row(i) * Shared::kOwnBytes);
    }
  }
  // Returns the lane's i-th row, counted from the block's first.
  __device__ __forceinline__ int own_row(int i) const {
    return warp_rows_ + i * 8 + (lane_ >> 2);
  }

  __device__ __forceinline__ void take_tangents(Scores& s) const {
#pragma unroll
    for (int i = 0; i < kMT * kNT * 4; ++i) {
      (&s[0][0][0])[i] = tanh_by_exp2((&s[0][0][0])[i] * scaling_.to_tangent);
    }
  }

  // Returns the slope of a capped score, 1 - tanh². The tangent is computed from the probability,
  // as there are no registers to keep both. `origin` is the log-sum-exp to base 2.
  __device__ __forceinline__ float slope_of_cap(float probability, float origin) const {
    if (probability <= 0) return 0;
    const float tangent = __fdividef(__log2f(probability) + (origin - Traits::kShift), scaling_.c);
    return fmaxf(fmaf(-tangent, tangent, 1.0F), 0.0F);
  }

  // Replaces scores by their probabilities, times 2^kShift.
  __device__ __forceinline__ void exponentiate(Scores& s, const Passing& y,
                                               const float2 (&own)[kMT][2]) const {
    const int t = lane_ & 3;
#pragma unroll
    for (int n = 0; n < kNT; ++n) {
      float2 lse2 = {}, correction = {};
      if constexpr (!kQueries) lse2 = load_shared_pair(y.own_stats + (n * 8 + 2 * t) * 4);
      if constexpr (kIsCorrected && !kQueries) {
        correction = load_shared_pair(y.own_stats + (2 * kN + n * 8 + 2 * t) * 4);
      }
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float origin = kQueries ? own[mt][e / 2].x : e % 2 == 0 ? lse2.x : lse2.y;
          s[mt][n][e] = exp2_fast(fmaf(s[mt][n][e], scaling_.c, Traits::kShift - origin));
          if constexpr (kIsCorrected && !kQueries) {
            s[mt][n][e] *= e % 2 == 0 ? correction.x : correction.y;
          }
        }
      }
    }
  }

  // Sets probabilities to 0 where a query must not see the key, or the key is after the last one.
  // (For queries after the last one, lse2 is infinite.)
  __device__ __forceinline__ void mask(Scores& s, const Passing& y) const {
    if (!tile_.hides_any(p_, warp_first_, y.row)) return;
    const int g = lane_ >> 2, t = lane_ & 3;
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
      for (int n = 0; n < kNT; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int own = warp_first_ + mt * 16 + e / 2 * 8 + g,
                    other = y.own_row + n * 8 + 2 * t + e % 2;
          if (tile_.hides(p_, own, other)) s[mt][n][e] = 0;
        }
      }
    }
  }

  __device__ __forceinline__ void add_up(const Scores& s) {
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
      for (int n = 0; n < kNT; ++n) {
        own_sum_[mt][0] += s[mt][n][0] + s[mt][n][1];
        own_sum_[mt][1] += s[mt][n][2] + s[mt][n][3];
      }
    }
  }

  // Replaces dP by dS = P (dP - delta), times the slope of the cap where scores are capped.
  __device__ __forceinline__ void differentiate(Scores& ds, const Scores& s, const Passing& y,
                                                const float2 (&own)[kMT][2]) const {
    const int t = lane_ & 3;
    RowFactors own_grad;
#pragma unroll
    for (int i = 0; i < 2 * kMT; ++i) {
      own_grad[i / 2][i % 2] =
          kQueries && kIsCorrected
              ? load_shared_pair(own_stats() + own_row(i) * Shared::kOwnBytes + 8).x
              : scaling_.grad;
    }
#pragma unroll
    for (int n = 0; n < kNT; ++n) {
      float2 level = {}, lse2 = {};
      if constexpr (!kQueries) {
        if (scaling_.to_tangent != 0) lse2 = load_shared_pair(y.own_stats + (n * 8 + 2 * t) * 4);
        level = load_shared_pair(y.own_stats + (kN + n * 8 + 2 * t) * 4);
        level.x *= scaling_.level;
        level.y *= scaling_.level;
      }
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float minus = kQueries ? own[mt][e / 2].y : e % 2 == 0 ? level.x : level.y;
          ds[mt][n][e] = s[mt][n][e] * fmaf(ds[mt][n][e], own_grad[mt][e / 2], -minus);
          if (scaling_.to_tangent == 0) continue;
          const float origin = kQueries ? own[mt][e / 2].x : e % 2 == 0 ? lse2.x : lse2.y;
          ds[mt][n][e] *= slope_of_cap(s[mt][n][e], origin);
        }
      }
    }
  }

  // --- the second products -----------------------------------------------------------------------
  // Adds P' dO to dV, or stores P for the other warp of the pair to read.
  __device__ __forceinline__ void give_values(const Scores& s, const Passing& y,
                                              const Lanes& lanes) {
    if constexpr (kShare == 1) {
      add_product(value_acc_, s, y.stage + Shared::kY, lanes);
    } else {
      pass_on(exchange(), s);
    }
  }

  // Adds dS Y to the gradient of X, or stores dS for the other warp of the pair to read.
  __device__ __forceinline__ void give_gradient(const Scores& ds, const Passing& y,
                                                const Lanes& lanes) {
    if constexpr (kShare == 1) {
      add_product(acc_, ds, y.stage, lanes);
    } else {
      pass_on(exchange() + Shared::kFragments, ds);
    }
  }

  template <int kTiles>
  __device__ __forceinline__ void add_product(float (&acc)[kMT][kTiles][4], const Scores& s,
                                              std::uint32_t y, const Lanes& lanes) {
    RowFactors one;  // nothing to rescale
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) one[mt][0] = one[mt][1] = 1;
    Fragments<kParts, kMT, kN> fragments;
    pack_fragments<T>(fragments, s);
    multiply_columns<T, kParts, kD, kMT, kN, Shared::kYPlane>(acc, fragments, y, lanes, one);
  }

  // Returns where the two warps of a pair exchange fragments of P; those of dS follow.
  __device__ __forceinline__ std::uint32_t exchange() const {
    return memory_ + Shared::kExchange + group_ * 2 * Shared::kFragments;
  }

  __device__ __forceinline__ void pass_on(std::uint32_t to, const Scores& from) {
    Fragments<kParts, kMT, kOwn> fragments;
    pack_fragments<T>(fragments, from);
#pragma unroll
    for (int k = 0; k < kOwn / 16; ++k) {
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
        store_fragment(to + ((share_ * (kOwn / 16) + k) * kMT + mt) * 512, fragments.word[0][mt][k],
                       lane_);
      }
    }
  }

  // Adds this warp's half of the columns of P' dO and dS Y, made of the P and dS of both warps.
  __device__ __forceinline__ void add_exchanged(const Passing& y, const Lanes& lanes) {
    synchronize_pair(group_);  // read below, written again after the next barrier of the block
    if constexpr (kValues) {
      multiply_shared_columns<T, kD, kColumns, kMT, kN>(
          value_acc_, exchange(), y.stage + Shared::kY, share_ * kColumns, lanes, lane_);
    }
    if constexpr (kFirst) {
      multiply_shared_columns<T, kD, kColumns, kMT, kN>(acc_, exchange() + Shared::kFragments,
                                                        y.stage, share_ * kColumns, lanes, lane_);
    }
  }

  // --- finish() scales the sums and stores the results -------------------------------------------
  __device__ __forceinline__ void finish() {
    // It is computed again, as registers were scarce until here.
    const BackwardScaling scaling = find_scaling<T, Traits::kGradient>(p_, tile_.batch_head);
    RowFactors factor;
#pragma unroll
    for (int mt = 0; mt < kMT; ++mt) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factor[mt][half] = scaling.gradient_factor;
        if constexpr (kQueries) correct_query(factor[mt][half], mt, half);
      }
    }
    if constexpr (kFirst) store(p_.gradient, acc_, factor);
    if constexpr (kValues) {
      RowFactors value_factor;
#pragma unroll
      for (int mt = 0; mt < kMT; ++mt) {
        value_factor[mt][0] = value_factor[mt][1] = scaling.value_factor;
      }
      store(p_.value_gradient, value_acc_, value_factor);
    }
  }

  // Multiplies `factor` by the power of two of the row's dO and, for two parts, by the correction
  // of the row's probabilities, which it stores for the kernels that make dK and dV.
  __device__ __forceinline__ void correct_query(float& factor, int mt, int half) const {
    const int g = lane_ >> 2, t = lane_ & 3;
    const std::int64_t row = stats_row_ + warp_first_ + mt * 16 + half * 8 + g;
    const float exponent = p_.ranges != nullptr ? p_.exponent[row] : 0;
    factor *= exp2f(exponent);
    if constexpr (kIsCorrected) {
      float sum = own_sum_[mt][half];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      const float correction = sum == 0 ? 0 : exp2f(Traits::kShift) / sum;
      factor *= correction;
      if (t == 0) p_.correction[row] = correction;
    }
  }

  template <int kTiles>
  __device__ __forceinline__ void store(const ResultView& to, const float (&acc)[kMT][kTiles][4],
                                        const RowFactors& factor) const {
    store_rows<T, kParts, kD, kColumns, kMT>(to, tile_.batch, tile_.head, warp_first_, p_.x.rows,
                                             share_ * kColumns, p_.width, acc, factor, x_rows(),
                                             lane_);
  }

  const BackwardParams& p_;
  const BackwardTile<Traits> tile_;
  const std::uint32_t memory_;
  const int thread_;
  const T *y_head_, *y_pair_head_;
  int lane_, group_, share_;
  int warp_rows_, warp_first_;  // the first row of the warps' group: in the block, in the tensor
  std::int64_t stats_row_;      // the row of the head's first query in the statistics
  const Lanes lane_offsets_;
  BackwardScaling scaling_;
  float acc_[kMT][kFirst ? kColumns / 8 : 1][4] = {};         // the gradient of x
  float value_acc_[kMT][kValues ? kColumns / 8 : 1][4] = {};  // dV
  // The sums of the probabilities of each of the lane's queries, for correct_query().
  float own_sum_[kMT][2] = {};
};

}  // namespace tracestep::cuda::portable
