// Stochastic rounding to bfloat16, written once as functors.h is, with the same macros: `V` is
// float32 or a vector of it, `U` the bits of it. Beside the functors' vocabulary it uses integer
// operators on U, `bits` (V → U), `from_bits` (U → V) and `constant(U, …)`.
//
// The noise of an element is a hash of the number of the step and of the bits of its weight and its
// gradient. It needs no state and no position: parts of a tensor, several tensors in one launch,
// other thread counts and devices all round alike.
#if !defined(TRACESTEP_OPS_SCALAR_STOCHASTIC_ROUNDING_H) || defined(TRACESTEP_FUNCTORS_NAMESPACE)
#define TRACESTEP_OPS_SCALAR_STOCHASTIC_ROUNDING_H
#ifndef TRACESTEP_FUNCTORS_NAMESPACE
#define TRACESTEP_FUNCTORS_NAMESPACE tracestep::scalar
#endif

#ifndef TRACESTEP_FUNCTION
#ifdef __CUDACC__
#define TRACESTEP_FUNCTION __host__ __device__
#else
#define TRACESTEP_FUNCTION
#endif
#endif

namespace TRACESTEP_FUNCTORS_NAMESPACE {

// Mixes bits so that every bit of the result depends on every bit of h (Wellons, "hash prospector",
// 2018).
struct MixedBits {
  template <class U>
  TRACESTEP_FUNCTION U operator()(U h) const {
    h = (h ^ (h >> 16)) * constant(h, 0x21f0aaadu);
    h = (h ^ (h >> 15)) * constant(h, 0x735a2d97u);
    return h ^ (h >> 15);
  }
};

// The 32 random bits of an element, of which each half rounds one number. `step`: the bits of the
// step's number as float32.
struct RoundingNoise {
  template <class U>
  TRACESTEP_FUNCTION U operator()(U step, U weight, U gradient) const {
    const U of_step = MixedBits()(step + constant(step, 0x9e3779b9u));
    return MixedBits()(MixedBits()(weight + of_step) ^ gradient);
  }
};

// The noise for the weight, made from that of the element, whose two halves round the moments.
struct WeightNoise {
  template <class U>
  TRACESTEP_FUNCTION U operator()(U noise) const {
    return MixedBits()(noise + constant(noise, 0x9e3779b9u));
  }
};

// Rounds x to bfloat16 (the lower 16 bits are zero): away from zero with a probability equal to the
// fraction that is cut off, so that the mean over all noise is x. Reads the lower 16 bits of
// `noise`. Exact numbers, infinities and NaN keep their value.
struct StochasticRound {
  template <class V, class U>
  TRACESTEP_FUNCTION V operator()(V x, U noise) const {
    const U sum = bits(x) + (noise & constant(noise, 0xffffu));
    return select(equal(x, x), from_bits(sum & constant(noise, 0xffff0000u)), x);
  }
};

}  // namespace TRACESTEP_FUNCTORS_NAMESPACE

#undef TRACESTEP_FUNCTORS_NAMESPACE
#endif  // TRACESTEP_OPS_SCALAR_STOCHASTIC_ROUNDING_H
