// Elementwise arithmetic and comparison. Integers wrap around; booleans stay 0 or 1.
#include <cmath>
#include <numbers>
#include <type_traits>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

// --- functions of one float64 operand, which elementwise kernels apply to each element ----------
double neg(double x) {
  return -x;
}
double abs(double x) {
  return x < 0 ? -x : x;
}
double square(double x) {
  return x * x;
}
double reciprocal(double x) {
  return 1 / x;
}
double exp(double x) {
  return std::exp(x);
}
double log(double x) {
  return std::log(x);
}
double sqrt(double x) {
  return std::sqrt(x);
}
double rsqrt(double x) {
  return 1 / std::sqrt(x);
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double tanh(double x) {
  return std::tanh(x);
}
double normal_cdf(double x) {
  return std::erfc(-x / std::numbers::sqrt2) / 2;
}
double relu(double x) {
  return x > 0 || std::isnan(x) ? x : 0;
}

template <double f(double)>
void unary(const KernelCall& call) {
  const View<double> x(call.inputs[0]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { y[i] = f(x[i]); });
}

// Computes y = scale · x + shift.
void affine(const KernelCall& call) {
  const double scale = call.attrs.real("scale"), shift = call.attrs.real("shift");
  const View<double> x(call.inputs[0]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { y[i] = scale * x[i] + shift; });
}

// --- two operands ------------------------------------------------------------------------------
// Returns x as a 64-bit unsigned number, which wraps around; signed overflow is undefined in C++.
template <class T>
std::uint64_t wide(T x) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(x));
}

struct Add {
  static double of(double a, double b) { return a + b; }
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(wide(a) + wide(b));
  }
};
struct Sub {
  static double of(double a, double b) { return a - b; }
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(wide(a) - wide(b));
  }
};
struct Mul {
  static double of(double a, double b) { return a * b; }
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(wide(a) * wide(b));
  }
};
template <class T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  return false;
}

// Returns the larger of a and b, or NaN if one is NaN: a NaN in `a` is not smaller, so it stays.
struct Maximum {
  template <class T>
  static T of(T a, T b) {
    return a < b || is_nan(b) ? b : a;
  }
};
struct Minimum {
  template <class T>
  static T of(T a, T b) {
    return b < a || is_nan(b) ? b : a;
  }
};

template <class Op>
void binary(const KernelCall& call) {
  const DType dtype = call.outputs[0].dtype;
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> a(call.inputs[0]), b(call.inputs[1]), y(call.outputs[0]);
    for_each_index(call.outputs[0].shape, [&](const Dims& i) {
      const T value = Op::of(a[i], b[i]);
      y[i] = dtype == DType::kBool ? static_cast<T>(value != 0) : value;
    });
  });
}

void div(const KernelCall& call) {
  const View<double> a(call.inputs[0]), b(call.inputs[1]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { y[i] = a[i] / b[i]; });
}

// --- comparisons of two elements of one type, each with a bool result --------------------------
struct Equal {
  template <class T>
  static bool of(T a, T b) {
    return a == b;
  }
};
struct Less {
  template <class T>
  static bool of(T a, T b) {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  static bool of(T a, T b) {
    return a <= b;
  }
};

template <class Op>
void compare(const KernelCall& call) {
  with_type(call.inputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> a(call.inputs[0]), b(call.inputs[1]);
    const View<std::uint8_t> y(call.outputs[0]);
    for_each_index(call.outputs[0].shape,
                   [&](const Dims& i) { y[i] = Op::of(a[i], b[i]) ? 1 : 0; });
  });
}

}  // namespace

void add_arithmetic(KernelTable& table) {
  table.add("neg", unary<neg>);
  table.add("abs", unary<abs>);
  table.add("square", unary<square>);
  table.add("reciprocal", unary<reciprocal>);
  table.add("exp", unary<exp>);
  table.add("log", unary<log>);
  table.add("sqrt", unary<sqrt>);
  table.add("rsqrt", unary<rsqrt>);
  table.add("sigmoid", unary<sigmoid>);
  table.add("tanh", unary<tanh>);
  table.add("normal_cdf", unary<normal_cdf>);
  table.add("relu", unary<relu>);
  table.add("affine", affine);
  table.add("add", binary<Add>);
  table.add("sub", binary<Sub>);
  table.add("mul", binary<Mul>);
  table.add("div", div);
  table.add("maximum", binary<Maximum>);
  table.add("minimum", binary<Minimum>);
  table.add("eq", compare<Equal>);
  table.add("lt", compare<Less>);
  table.add("le", compare<LessEqual>);
}

}  // namespace tracestep::reference
