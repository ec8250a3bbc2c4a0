// Scalar functors: the arithmetic of every elementwise op, written once. This file includes
// nothing; it uses one fixed vocabulary (operators, exp, log, sqrt, rsqrt, abs, min, max, sin,
// cos, less, less_equal, equal, select, constant) that is overloaded for float, for SIMD vectors
// and for device code, so eager, vector and run-time compiled kernels cannot disagree.
// `V` is the computing type (float32 or a vector of it).
//
// Compiler target options apply where a template's text stands, so a file compiled for several
// SIMD targets includes this one again for each: it defines TRACESTEP_FUNCTORS_NAMESPACE as that
// target's own namespace first. All other files include it once, without that macro.
#if !defined(TRACESTEP_OPS_SCALAR_FUNCTORS_H) || defined(TRACESTEP_FUNCTORS_NAMESPACE)
#define TRACESTEP_OPS_SCALAR_FUNCTORS_H
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

#ifndef TRACESTEP_UNARY_OPS
// The lists from which kernels are instantiated: X(op name, functor).
#define TRACESTEP_UNARY_OPS(X) \
  X(neg, Neg)                  \
  X(abs, Abs)                  \
  X(square, Square)            \
  X(reciprocal, Reciprocal)    \
  X(exp, Exp)                  \
  X(log, Log)                  \
  X(sqrt, Sqrt)                \
  X(rsqrt, Rsqrt)              \
  X(sigmoid, Sigmoid)          \
  X(tanh, Tanh)                \
  X(normal_cdf, NormalCdf)     \
  X(relu, Relu)                \
  X(silu, Silu)                \
  X(gelu, Gelu)                \
  X(gelu_erf, GeluErf)

#define TRACESTEP_BINARY_OPS(X) \
  X(add, Add)                   \
  X(sub, Sub)                   \
  X(mul, Mul)                   \
  X(maximum, Maximum)           \
  X(minimum, Minimum)

// Functors that exist for floating operands only.
#define TRACESTEP_FLOATING_BINARY_OPS(X) \
  X(div, Div)                            \
  X(silu_grad, SiluGrad)                 \
  X(gelu_grad, GeluGrad)                 \
  X(gelu_erf_grad, GeluErfGrad)          \
  X(swiglu, Swiglu)

#define TRACESTEP_COMPARE_OPS(X) \
  X(eq, Equal)                   \
  X(lt, Less)                    \
  X(le, LessEqual)
#endif

namespace TRACESTEP_FUNCTORS_NAMESPACE {

struct Neg {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return constant(x, 0.0f) - x;
  }
};
struct Abs {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return abs(x);
  }
};
struct Square {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return x * x;
  }
};
struct Reciprocal {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return constant(x, 1.0f) / x;
  }
};
struct Exp {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return exp(x);
  }
};
struct Log {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return log(x);
  }
};
struct Sqrt {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return sqrt(x);
  }
};
struct Rsqrt {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return rsqrt(x);
  }
};
// Returns 1 + e^-x; a computing type may overload it, as vectors do with a faster version.
template <class V>
TRACESTEP_FUNCTION V one_plus_exp_of_minus(V x) {
  return constant(x, 1.0f) + exp(constant(x, 0.0f) - x);
}
struct Sigmoid {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return constant(x, 1.0f) / one_plus_exp_of_minus(x);
  }
};
// Returns (e^2|x| - 1) / (e^2|x| + 1) with the sign of x; near 0, where the difference cancels, a
// polynomial with an error below an ulp (Cephes, tanhf). Beyond |x| = 10 the quotient is 1.
struct Tanh {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    const V one = constant(x, 1.0f), zero = constant(x, 0.0f), two = constant(x, 2.0f);
    const V size = min(abs(x), constant(x, 10.0f));
    const V far = one - two / (exp(two * size) + one);
    const V z = x * x;
    V p = constant(x, -5.70498872745e-3f) * z + constant(x, 2.06390887954e-2f);
    p = p * z + constant(x, -5.37397155531e-2f);
    p = p * z + constant(x, 1.33314422036e-1f);
    p = p * z + constant(x, -3.33332819422e-1f);
    const V near = x + x * (z * p);
    const V signed_far = select(less(x, zero), zero - far, far);
    return select(less(abs(x), constant(x, 0.625f)), near, signed_far);
  }
};
// The standard normal distribution function, erfc(-x/√2)/2. erfc by a Chebyshev fit whose relative
// error is 1.2e-7 everywhere (Press et al., Numerical Recipes, 6.2), so that small tails keep their
// digits.
struct NormalCdf {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    constexpr float terms[] = {0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                               -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
    const V one = constant(x, 1.0f), half = constant(x, 0.5f);
    const V z = abs(x) * constant(x, 0.707106781f);
    const V t = one / (one + half * z);
    V p = constant(x, terms[0]);
    for (int i = 1; i < 10; ++i) p = p * t + constant(x, terms[i]);
    const V tail = half * (t * exp(p - half * (x * x)));
    return select(less(x, constant(x, 0.0f)), tail, one - tail);
  }
};
struct Relu {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return max(x, constant(x, 0.0f));
  }
};
struct Silu {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return x / one_plus_exp_of_minus(x);
  }
};
// x · sigmoid(u) with u = 2√(2/π) (x + 0.044715 x³), which is x/2 · (1 + tanh(u/2)).
struct Gelu {
  static constexpr float kLinear = 1.59576912f;   // The coefficient of x in u: 2√(2/π).
  static constexpr float kCubic = 0.0713548163f;  // 0.044715 times the constant above.
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    const V u = x * (constant(x, kLinear) + constant(x, kCubic) * (x * x));
    return x / one_plus_exp_of_minus(u);
  }
};
// x · Φ(x), the form of GELU by the normal distribution itself.
struct GeluErf {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x) const {
    return x * NormalCdf()(x);
  }
};

struct Add {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V a, V b) const {
    return a + b;
  }
};
struct Sub {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V a, V b) const {
    return a - b;
  }
};
struct Mul {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V a, V b) const {
    return a * b;
  }
};
struct Div {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V a, V b) const {
    return a / b;
  }
};
struct Maximum {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V a, V b) const {
    return max(a, b);
  }
};
struct Minimum {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V a, V b) const {
    return min(a, b);
  }
};
// The derivative of silu, s(x) (1 + x (1 - s(x))), times the gradient g.
struct SiluGrad {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V g, V x) const {
    const V one = constant(x, 1.0f);
    const V s = one / one_plus_exp_of_minus(x);
    return g * (s * (one + x * (one - s)));
  }
};
// The derivative of gelu, s(u) (1 + x (1 - s(u)) du/dx), times the gradient g. Beyond ±16 it is 1
// or 0 to the last bit; x is clamped there, so that large powers of it do not become infinite.
struct GeluGrad {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V g, V x) const {
    const V one = constant(x, 1.0f), linear = constant(x, Gelu::kLinear);
    const V near = min(max(x, constant(x, -16.0f)), constant(x, 16.0f));
    const V cubic = constant(x, Gelu::kCubic) * (near * near);
    const V s = one / one_plus_exp_of_minus(near * (linear + cubic));
    const V slope = linear + constant(x, 3.0f) * cubic;
    return g * (s * (one + near * (one - s) * slope));
  }
};
// The derivative of gelu by the normal distribution, (Φ(x) + x φ(x)) with φ = Φ', times the
// gradient g.
struct GeluErfGrad {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V g, V x) const {
    const V near = min(max(x, constant(x, -20.0f)), constant(x, 20.0f));
    const V density = constant(x, 0.398942280f) * exp(constant(x, -0.5f) * (near * near));
    return g * (NormalCdf()(near) + near * density);
  }
};
struct Swiglu {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V gate, V up) const {
    return Silu()(gate) * up;
  }
};

// The gradients of swiglu's operands; the sigmoid is recomputed.
template <class V>
struct SwigluGradient {
  V gate, up;
};
struct SwigluGrad {
  template <class V>
  TRACESTEP_FUNCTION SwigluGradient<V> operator()(V g, V gate, V up) const {
    return {SiluGrad()(g * up, gate), g * Silu()(gate)};
  }
};
// The pair (a, b) rotated by an angle.
template <class V>
struct RotatedPair {
  V first, second;
};
struct Rotate {
  template <class V>
  TRACESTEP_FUNCTION RotatedPair<V> operator()(V a, V b, V cos, V sin) const {
    return {a * cos - b * sin, a * sin + b * cos};
  }
};

struct Equal {
  template <class V>
  TRACESTEP_FUNCTION auto operator()(V a, V b) const {
    return equal(a, b);
  }
};
struct Less {
  template <class V>
  TRACESTEP_FUNCTION auto operator()(V a, V b) const {
    return less(a, b);
  }
};
struct LessEqual {
  template <class V>
  TRACESTEP_FUNCTION auto operator()(V a, V b) const {
    return less_equal(a, b);
  }
};

// y = x * scale + shift
struct Affine {
  template <class V>
  TRACESTEP_FUNCTION V operator()(V x, V scale, V shift) const {
    return x * scale + shift;
  }
};

// The results of a step of AdamW (Loshchilov and Hutter 2019): decay first, decoupled; epsilon is
// added to √v without bias correction, since both corrections are inside `step_size`.
template <class V>
struct AdamwResult {
  V parameter, m, v;
};
struct Adamw {
  template <class V>
  TRACESTEP_FUNCTION AdamwResult<V> operator()(V p, V g, V m, V v, V decay, V step_size, V beta1,
                                               V beta2, V eps) const {
    const V one = constant(p, 1.0f);
    const V m1 = m * beta1 + g * (one - beta1);
    const V v1 = v * beta2 + g * g * (one - beta2);
    return {p * decay - step_size * m1 / (sqrt(v1) + eps), m1, v1};
  }
};

}  // namespace TRACESTEP_FUNCTORS_NAMESPACE

#undef TRACESTEP_FUNCTORS_NAMESPACE
#endif  // TRACESTEP_OPS_SCALAR_FUNCTORS_H
