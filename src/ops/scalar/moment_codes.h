// Codes of AdamW's moments, written once as functors.h is, with the same macros; `V`, `U` and the
// vocabulary are those of stochastic_rounding.h, with `<<` on U.
//
// A code is a small floating-point number of 4 bits of mantissa, times the scale of its block: of m
// a sign and 3 bits of exponent, of v, which is never negative, 4 bits of exponent. As in IEEE 754
// the numbers below the least exponent lie evenly down to zero. The scale is the power of two for
// which the largest magnitude of the block lies between 1 and 1.9375, the largest number: so
// moments that do not change keep their codes, whatever their neighbours do. Numbers are rounded at
// random, since a step changes v by less than the distance to the next code.
#if !defined(TRACESTEP_OPS_SCALAR_MOMENT_CODES_H) || defined(TRACESTEP_FUNCTORS_NAMESPACE)
#define TRACESTEP_OPS_SCALAR_MOMENT_CODES_H
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

// How the first moment, m, is coded: with a sign, and `kTop` as the largest exponent.
struct FirstMoment {
  static constexpr int kTop = 7;
  static constexpr bool kSigned = true;
};
struct SecondMoment {
  static constexpr int kTop = 15;
  static constexpr bool kSigned = false;
};

// The scale of a block and its inverse, as bits of float32, from the bits of the block's largest
// magnitude. NaN if that is NaN, infinite or too large to have an inverse; never so small that a
// code would be subnormal in float32.
struct MomentScale {
  static constexpr unsigned kNaN = 0x7fc00000u, kLeastExponent = 20, kMostExponent = 253;

  TRACESTEP_FUNCTION unsigned operator()(unsigned largest) const {
    const unsigned exponent = (largest + 0x7ffffu) >> 23;  // above 1.9375: that of the next power
    if (exponent > kMostExponent) return kNaN;
    return (exponent < kLeastExponent ? kLeastExponent : exponent) << 23;
  }
  static TRACESTEP_FUNCTION unsigned inverse(unsigned scale) {
    return scale == kNaN ? kNaN : 0x7f000000u - scale;
  }
};

// Codes scaled numbers. Below the least exponent the codes are evenly spaced: such an x becomes (x
// + least) / 2, which has the exponent below, and whose bits count the steps.
template <class Moment>
struct MomentCode {
  static constexpr float kLeast = 2.0f / static_cast<float>(1u << Moment::kTop);
  static constexpr unsigned kBase = static_cast<unsigned>(127 - Moment::kTop) << 23;

  // Returns the code of a number, in the lower 8 bits. The lower 16 bits of `noise` decide between
  // the two neighbours of x; an exact number keeps its value. A v that is not zero never gets the
  // code of zero, with which the weight would move by m / eps.
  template <class V, class U>
  TRACESTEP_FUNCTION U operator()(V x, V inverse_scale, U noise) const {
    const V y = abs(x) * inverse_scale, zero = constant(x, 0.0f);
    V h = max(y, y * constant(x, 0.5f) + constant(x, 0.5f * kLeast));
    if constexpr (!Moment::kSigned) {
      h = max(h, select(less(zero, y), constant(x, 0.5f * kLeast * 1.0625f), zero));
    }
    const U cut = ((noise & constant(noise, 0xffffu)) << 3) + constant(noise, 4u - kBase);
    const U code = (bits(h) + cut) >> 19;
    if constexpr (!Moment::kSigned) return code;
    return code + ((bits(x) >> 24) & constant(noise, 0x80u));
  }
};

template <class Moment>
struct MomentFromCode {
  // Returns the number of a code. `code`: in the lower 8 bits; the others are zero.
  template <class V, class U>
  TRACESTEP_FUNCTION V operator()(U code, V scale) const {
    using Code = MomentCode<Moment>;
    const U magnitude = Moment::kSigned ? code & constant(code, 0x7fu) : code;
    const V h = from_bits((magnitude << 19) + constant(code, Code::kBase));
    const V least = constant(scale, Code::kLeast);
    const V y = (h - max(least - h, constant(scale, 0.0f))) * scale;
    if constexpr (!Moment::kSigned) return y;
    return from_bits(bits(y) + ((code & constant(code, 0x80u)) << 24));
  }
};

}  // namespace TRACESTEP_FUNCTORS_NAMESPACE

#undef TRACESTEP_FUNCTORS_NAMESPACE
#endif  // TRACESTEP_OPS_SCALAR_MOMENT_CODES_H
