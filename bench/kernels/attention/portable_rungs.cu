// The ladder of the portable attention kernels: the same kernel from its first correct shape to the
// one in use, each rung checked against the first (which `portable check` checks against float64)
// and timed. What a rung changes and why it helps stands in its line. Causal, 16 heads of 8192
// tokens.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cuda/attention/portable_backward.cuh"
#include "backends/cuda/attention/portable_kernels.h"
#include "harness.cuh"

namespace {

using namespace tracestep::cuda;
using namespace tracestep::cuda::portable;

constexpr int kHeads = 16, kTokens = 8192;

// Operands as the kernels read them: bfloat16, or float32 in two float16 parts.
template <int kParts, int kD>
struct Problem {
  static constexpr std::int64_t kCount = std::int64_t{kHeads} * kTokens * kD;
  using Element = std::conditional_t<kParts == 1, __nv_bfloat16, float>;

  Problem() {
    for (int which = kQ; which < kOperands; ++which) {
      inputs.push_back(std::make_unique<ladder::Array<Element>>(kCount));
      ladder::fill_normal(*inputs.back(), static_cast<unsigned>(which) + 1);
      parts.push_back(std::make_unique<ladder::Array<std::uint16_t>>(kParts * kCount));
      results.push_back(std::make_unique<ladder::Array<float>>(kCount));  // 16-bit ones use half
      view[which].data = inputs.back()->data;
      view[which].strides = {0, std::int64_t{kTokens} * kD, kD};
      view[which].rows = kTokens;
    }
    if constexpr (kParts == 2) {
      SplitOperands split;
      for (int which = kQ; which < kOperands; ++which) {
        split.operand[which] = {inputs[which]->data, view[which].strides, parts[which]->data,
                                kTokens};
        view[which].data = parts[which]->data;
        view[which].plane = std::int64_t{kTokens} * kD;
        view[which].strides.head = 2 * view[which].plane;
      }
      split.ranges = ranges.data;
      split.heads = kHeads;
      split.width = split.padded = kD;
      ladder::check(split_operands(split, nullptr), "split");
    }
  }

  ResultView result(int which) {
    results[which]->poison();
    return {results[which]->data, {0, std::int64_t{kTokens} * kD, kD}, kParts == 2, true};
  }

  std::vector<double> values(int which) const {
    std::vector<double> x(kCount / 101);
    std::vector<float> raw(kCount);
    ladder::check(cudaMemcpy(raw.data(), results[which]->data, kCount * 4, cudaMemcpyDeviceToHost),
                  "results");
    const auto* halves = reinterpret_cast<const std::uint16_t*>(raw.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint32_t bits = std::uint32_t{halves[i * 101]} << 16;
      float bf16;
      std::memcpy(&bf16, &bits, 4);
      x[i] = kParts == 2 ? raw[i * 101] : bf16;
    }
    return x;
  }

  template <class P>
  void set_common(P& p) {
    p.heads = p.batch_heads = kHeads;
    p.width = kD;
    p.scale = 1 / std::sqrt(static_cast<float>(kD));
    p.causal = true;
    p.ranges = kParts == 2 ? ranges.data : nullptr;
  }

  ForwardParams forward() {
    ForwardParams p;
    set_common(p);
    p.q = view[kQ], p.k = view[kK], p.v = view[kV];
    p.o = result(0);
    p.lse = lse.data;
    return p;
  }

  BackwardParams backward(bool keys) {
    BackwardParams p;
    set_common(p);
    p.x = view[keys ? kK : kQ], p.x_pair = view[keys ? kV : kDO];
    p.y = view[keys ? kQ : kK], p.y_pair = view[keys ? kDO : kV];
    p.gradient = result(keys ? 1 : 2);
    if (keys) p.value_gradient = result(3);
    p.lse2 = lse2.data, p.delta = delta.data, p.correction = correction.data;
    p.exponent = kParts == 2 ? exponent.data : nullptr;
    p.query_pitch = kTokens;
    return p;
  }

  void find_stats() {
    QueryStats s;
    s.o = results[0]->data, s.d_o = inputs[kDO]->data;
    s.o_strides = s.do_strides = {0, std::int64_t{kTokens} * kD, kD};
    s.lse = lse.data, s.lse2 = lse2.data, s.delta = delta.data;
    s.exponent = kParts == 2 ? exponent.data : nullptr;
    s.dtype = kParts == 2 ? AttentionDType::kF32 : AttentionDType::kBF16;
    s.heads = kHeads, s.rows = s.pitch = kTokens, s.width = kD;
    ladder::check(find_query_stats(s, nullptr), "stats");
  }

  std::vector<std::unique_ptr<ladder::Array<Element>>> inputs;
  std::vector<std::unique_ptr<ladder::Array<std::uint16_t>>> parts;
  std::vector<std::unique_ptr<ladder::Array<float>>> results;
  TileView view[kOperands];
  ladder::Array<HeadRange> ranges{kHeads};
  ladder::Array<float> lse{kHeads * kTokens}, lse2{kHeads * kTokens}, delta{kHeads * kTokens},
      exponent{kHeads * kTokens}, correction{kHeads * kTokens};
};

// Times one rung; the first call of a ladder keeps its result for the others.
struct Ladder {
  explicit Ladder(const char* title) { std::printf("\n%s\n", title); }

  // `products`: matrix products of the tile, each 2 T^2 D / 2 operations a head.
  template <class Problem, class Params>
  void rung(Problem& problem, int which, int products, int width, const Params& params,
            cudaError_t (*launch)(const Params&, cudaStream_t), const char* why) {
    const double ms =
        ladder::median_ms(9, [&] { ladder::check(launch(params, nullptr), "launch"); });
    const std::vector<double> result = problem.values(which);
    if (first.empty()) first = result;
    const double error = ladder::relative_error(result, first);
    const double flops = products * 1.0 * kHeads * kTokens * kTokens * width;
    std::printf("  %7.3f ms %6.1f TFLOP/s  %5.2fx  error %.0e%s  %s\n", ms, flops / ms * 1e-9,
                last > 0 ? last / ms : 1, error, error < 5e-3 ? "" : " WRONG", why);
    last = ms;
  }

  std::vector<double> first;
  double last = 0;
};

constexpr auto kKeysValues = Gradient::kKeysValues, kQueries = Gradient::kQueries;

template <int kD>
void climb_bf16() {
  Problem<1, kD> p;
  {
    Ladder ladder(kD == 64 ? "bfloat16, D 64, forward" : "bfloat16, D 128, forward");
    const ForwardParams f = p.forward();
    ladder.rung(p, 0, 2, kD, f, launch_forward<BF16, 1, kD, 1, 4, 16, 1>,
                "4 warps of 16 rows, 16 keys a step");
    ladder.rung(p, 0, 2, kD, f, launch_forward<BF16, 1, kD, 1, 4, 64, 1>,
                "64 keys a step: a quarter of the barriers and of the row maxima");
    ladder.rung(p, 0, 2, kD, f, launch_forward<BF16, 1, kD, 1, 8, 64, 1>,
                "8 warps: half the loads of K and V");
    ladder.rung(p, 0, 2, kD, f, launch_forward<BF16, 1, kD, 2, 4, 64, 1>,
                "32 rows a warp: a fragment of K or V feeds two products, half the shared memory");
    ladder.rung(p, 0, 2, kD, f, launch_forward<BF16, 1, kD, 2, 4, 64, 2>,
                "two blocks a multiprocessor: one's exponentials under the other's products");
  }
  p.find_stats();
  {
    Ladder ladder(kD == 64 ? "bfloat16, D 64, dK and dV" : "bfloat16, D 128, dK and dV");
    const BackwardParams b = p.backward(true);
    ladder.rung(p, 1, 4, kD, b, launch_backward<BF16, 1, kD, 1, 8, 16, 1, kKeysValues>,
                "8 warps of 16 keys, 16 queries a step");
    ladder.rung(p, 1, 4, kD, b, launch_backward<BF16, 1, kD, 1, 8, 32, 1, kKeysValues>,
                "32 queries a step");
    if constexpr (kD == 64) {
      ladder.rung(p, 1, 4, kD, b, launch_backward<BF16, 1, kD, 2, 4, 32, 1, kKeysValues>,
                  "32 keys a warp");
      ladder.rung(p, 1, 4, kD, b, launch_backward<BF16, 1, kD, 2, 4, 32, 2, kKeysValues>,
                  "two blocks a multiprocessor");
    } else {
      ladder.rung(p, 1, 4, kD, b, launch_backward<BF16, 1, kD, 2, 8, 64, 1, kKeysValues, 2>,
                  "two warps share 32 keys and split D: a third less shared memory traffic");
      ladder.rung(p, 1, 4, kD, b, launch_backward<BF16, 1, kD, 2, 4, 64, 2, kKeysValues, 2>,
                  "two blocks of half the keys a multiprocessor");
    }
  }
  Ladder ladder(kD == 64 ? "bfloat16, D 64, dQ" : "bfloat16, D 128, dQ");
  const BackwardParams b = p.backward(false);
  ladder.rung(p, 2, 3, kD, b, launch_backward<BF16, 1, kD, 1, 8, 16, 1, kQueries>,
              "8 warps of 16 queries, 16 keys a step");
  ladder.rung(p, 2, 3, kD, b, launch_backward<BF16, 1, kD, 1, 8, 64, 1, kQueries>,
              "64 keys a step");
  ladder.rung(p, 2, 3, kD, b, launch_backward < BF16, 1, kD, 2, 4, kD == 64 ? 64 : 32, 2,
              kQueries >, "32 queries a warp, two blocks a multiprocessor");
}

void climb_float32() {
  Problem<2, 64> p;
  {
    Ladder ladder("float32 in two parts, D 64, forward (one product of float32 counted once)");
    const ForwardParams f = p.forward();
    ladder.rung(p, 0, 2, 64, f, launch_forward<F16, 2, 64, 1, 4, 16, 1>,
                "4 warps of 16 rows, 16 keys a step");
    ladder.rung(p, 0, 2, 64, f, launch_forward<F16, 2, 64, 1, 8, 64, 1>, "8 warps, 64 keys a step");
    ladder.rung(p, 0, 2, 64, f, launch_forward<F16, 2, 64, 2, 4, 64, 2>,
                "32 rows a warp, two blocks a multiprocessor");
  }
  p.find_stats();
  {
    Ladder ladder("float32 in two parts, D 64, dQ");
    const BackwardParams b = p.backward(false);
    ladder.rung(p, 2, 3, 64, b, launch_backward<F16, 2, 64, 1, 8, 32, 1, kQueries>,
                "8 warps of 16 queries");
    ladder.rung(p, 2, 3, 64, b, launch_backward<F16, 2, 64, 2, 4, 32, 2, kQueries>,
                "32 queries a warp, two blocks a multiprocessor");
  }
  Ladder ladder("float32 in two parts, D 64, dK and dV");
  const BackwardParams b = p.backward(true);
  ladder.rung(p, 1, 4, 64, b, launch_backward<F16, 2, 64, 1, 8, 32, 1, kKeysValues>,
              "8 warps of 16 keys");
  ladder.rung(p, 1, 4, 64, b, launch_backward<F16, 2, 64, 2, 4, 32, 2, kKeysValues>,
              "32 keys a warp, two blocks a multiprocessor; no spills since sums are settled");
}

}  // namespace

int main() {
  climb_bf16<64>();
  climb_bf16<128>();
  climb_float32();
  return 0;
}
