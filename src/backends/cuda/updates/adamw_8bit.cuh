// The update of one block of 128 elements whose moments are codes of 8 bits, by a warp.
#pragma once

#include "backends/cuda/updates/moment_codes.cuh"

namespace tracestep::cuda::updates {

// A float32 whose root and quotient are off by 2^-21 and take denominators below 2^-126 as zero:
// less than moments with 4 bits of mantissa show, and sqrt(v) + eps is far larger than 2^-126.
struct Quick {
  float v;
};
__device__ inline Quick constant(Quick, float x) {
  return {x};
}
__device__ inline Quick operator+(Quick a, Quick b) {
  return {a.v + b.v};
}
__device__ inline Quick operator-(Quick a, Quick b) {
  return {a.v - b.v};
}
__device__ inline Quick operator*(Quick a, Quick b) {
  return {a.v * b.v};
}
__device__ inline Quick operator/(Quick a, Quick b) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b.v));
  return {a.v * y};
}
__device__ inline Quick sqrt(Quick x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x.v));
  return {y};
}

struct Codes {
  const std::uint8_t* codes = nullptr;
  const float* scales = nullptr;
  std::uint8_t* codes_new = nullptr;  // nullptr: an unread result; so with the scales
  float* scales_new = nullptr;
};

struct CodedTensor {
  Stream p, g, p_new;
  Stream shadow;
  Codes m, v;
};

struct Updated {
  Pack<float, kFour> p;
  Coded m, v;
};

__device__ inline scalar::AdamwResult<Quick> updated(const Factors& f, float p, float g, Real m,
                                                     Real v) {
  const auto quick = [](Real x) { return Quick{x.v}; };
  return scalar::Adamw()(Quick{p}, Quick{g * f.grad_scale.v}, quick(m), quick(v), quick(f.decay),
                         quick(f.step_size), quick(f.beta1), quick(f.beta2), quick(f.eps));
}

__device__ inline Updated update_lane(const Factors& f, bool rounds_weight,
                                      const Pack<float, kFour>& p, const Pack<float, kFour>& g,
                                      const Coded& m, const Coded& v) {
  Updated out;
  Pack<float, kFour> m_new, v_new;
  Bits noise[kFour];
#pragma unroll
  for (int j = 0; j < kFour; ++j) {
    const auto r = updated(f, p.at[j], g.at[j], decoded<scalar::FirstMoment>(m.word, j, m.scale),
                           decoded<scalar::SecondMoment>(v.word, j, v.scale));
    noise[j] = scalar::RoundingNoise()(bits(f.count), bits(Real{p.at[j]}), bits(Real{g.at[j]}));
    out.p.at[j] = rounds_weight ? rounded_weight(Real{r.parameter.v}, noise[j]).v : r.parameter.v;
    m_new.at[j] = r.m.v;
    v_new.at[j] = r.v.v;
  }
  out.m = encoded<scalar::FirstMoment>(m_new, noise);
  out.v = encoded<scalar::SecondMoment>(v_new, noise);
  return out;
}

// A lane's four neighbouring elements as stored: weights, gradients, and codes of both moments.
template <class W, class G>
struct Lane {
  Pack<W, kFour> p;
  Pack<G, kFour> g;
  std::uint32_t m, v;
};

template <class T>
__device__ inline Pack<float, kFour> floats_of(const Pack<T, kFour>& x) {
  Pack<float, kFour> out;
#pragma unroll
  for (int j = 0; j < kFour; ++j) out.at[j] = to_float(x.at[j]);
  return out;
}

// How many blocks a warp updates one after the other, so that their scales are moved together: half
// a warp's lanes move scales of m, half those of v. One by one, an update takes 1.4 times as long.
constexpr unsigned kPerWarp = kWarp / 2;

// The blocks from `begin` on of a tensor that is updated in place, four elements at once, with
// weights W and gradients G. Indices count from there, so that 32 bits are enough.
template <class W, class G>
class Blocks {
 public:
  __device__ Blocks(const CodedTensor& t, std::int64_t begin)
      : p_(static_cast<W*>(t.p_new.data) + begin * kCodedBlock),
        g_(static_cast<const G*>(t.g.data) + begin * kCodedBlock),
        m_(t.m.codes_new + begin * kCodedBlock),
        v_(t.v.codes_new + begin * kCodedBlock),
        m_scales_(t.m.scales_new + begin),
        v_scales_(t.v.scales_new + begin),
        shadow_(static_cast<G*>(t.shadow.data)) {
    if (shadow_ != nullptr) shadow_ += begin * kCodedBlock;
  }

  // Updates the kPerWarp blocks of warp number `warp`, as far as they lie before block `end`.
  __device__ void update(const Factors& f, unsigned warp, unsigned end) const {
    const unsigned first = warp * kPerWarp, own = lane() % kPerWarp;
    float* const place_of_scale = (lane() < kPerWarp ? m_scales_ : v_scales_) + first + own;
    const bool has_scale = first + own < end;
    float scale = has_scale ? *place_of_scale : 0.0f;
    const unsigned rest = first < end ? end - first : 0, count = rest < kPerWarp ? rest : kPerWarp;
    for (unsigned k = 0; k < count; ++k) {
      const Lane<W, G> now = load(first + k);
      const float m_scale = __shfl_sync(kAllLanes, scale, static_cast<int>(k)),
                  v_scale = __shfl_sync(kAllLanes, scale, static_cast<int>(kPerWarp + k));
      const Updated x = update_lane(f, std::is_same_v<W, BF16> && f.rounds_weight, floats_of(now.p),
                                    floats_of(now.g), {now.m, m_scale}, {now.v, v_scale});
      store(first + k, x);
      if (own == k) scale = lane() < kPerWarp ? x.m.scale : x.v.scale;
    }
    if (has_scale) *place_of_scale = scale;
  }

 private:
  static __device__ unsigned lane() { return threadIdx.x % kWarp; }
  static __device__ unsigned place(unsigned block) {
    return block * static_cast<unsigned>(kCodedBlock) + lane() * kFour;
  }

  __device__ Lane<W, G> load(unsigned block) const {
    const unsigned i = place(block);
    return {load_pack<kFour>(p_ + i), load_pack<kFour>(g_ + i),
            *reinterpret_cast<const std::uint32_t*>(m_ + i),
            *reinterpret_cast<const std::uint32_t*>(v_ + i)};
  }

  template <class T>
  static __device__ void store_as(T* to, const Pack<float, kFour>& x) {
    Pack<T, kFour> out;
#pragma unroll
    for (int j = 0; j < kFour; ++j) out.at[j] = from_float<T>(x.at[j]);
    store_pack(to, out);
  }

  __device__ void store(unsigned block, const Updated& x) const {
    const unsigned i = place(block);
    store_as(p_ + i, x.p);
    if (shadow_ != nullptr) store_as(shadow_ + i, x.p);
    *reinterpret_cast<std::uint32_t*>(m_ + i) = x.m.word;
    *reinterpret_cast<std::uint32_t*>(v_ + i) = x.v.word;
  }

  W* p_;
  const G* g_;
  std::uint8_t *m_, *v_;
  float *m_scales_, *v_scales_;
  G* shadow_;  // nullptr: there is none
};

// Updates one block element by element: a block of a tensor that cannot be moved four elements at
// once, or a tensor's short last block, whose missing elements count as 0.
__device__ inline void update_short(const CodedTensor& t, const Factors& f, std::int64_t block,
                                    std::int64_t count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first = block * kCodedBlock + lane * kFour;
  const auto at = [&](const Stream& x, std::int64_t i) {
    return widened<1>(load<1>(x, i), x.dtype).at[0];
  };
  Pack<float, kFour> p{}, g{};
  Coded m{0, t.m.scales[block]}, v{0, t.v.scales[block]};
  for (int j = 0; j < kFour && first + j < count; ++j) {
    p.at[j] = at(t.p, first + j);
    g.at[j] = at(t.g, first + j);
    m.word |= std::uint32_t{t.m.codes[first + j]} << (8 * j);
    v.word |= std::uint32_t{t.v.codes[first + j]} << (8 * j);
  }
  const bool rounds_weight = f.rounds_weight && t.p.dtype == DType::kBF16;
  const Updated out = f.apply ? update_lane(f, rounds_weight, p, g, m, v) : Updated{p, m, v};
  for (int j = 0; j < kFour && first + j < count; ++j) {
    store<1>(t.p_new, first + j, {out.p.at[j]});
    store<1>(t.shadow, first + j, {out.p.at[j]});
    const auto put = [&](const Codes& to, std::uint32_t word) {
      if (to.codes_new != nullptr) {
        to.codes_new[first + j] = static_cast<std::uint8_t>(word >> (8 * j));
      }
    };
    put(t.m, out.m.word);
    put(t.v, out.v.word);
  }
  if (lane > 0) return;
  if (t.m.scales_new != nullptr) t.m.scales_new[block] = out.m.scale;
  if (t.v.scales_new != nullptr) t.v.scales_new[block] = out.v.scale;
}

}  // namespace tracestep::cuda::updates
