#include "backends/cpu/integers.h"

#include <string_view>
#include <type_traits>

#include "backends/cpu/operand.h"
#include "backends/cpu/plain_chunks.h"
#include "ops/scalar/functors.h"

namespace tracestep::cpu {
namespace {

// An integer as a computing type of the scalar functors.
template <class T>
struct Whole {
  T v;
};

// Narrows an integer, wrapping around; unsigned, because signed overflow is undefined.
template <class T>
Whole<T> narrowed(std::uint64_t x) {
  return {static_cast<T>(x)};
}
template <class T>
std::uint64_t wide(Whole<T> x) {
  return static_cast<std::uint64_t>(x.v);
}
template <class T>
Whole<T> operator+(Whole<T> a, Whole<T> b) {
  return narrowed<T>(wide(a) + wide(b));
}
template <class T>
Whole<T> operator-(Whole<T> a, Whole<T> b) {
  return narrowed<T>(wide(a) - wide(b));
}
template <class T>
Whole<T> operator*(Whole<T> a, Whole<T> b) {
  return narrowed<T>(wide(a) * wide(b));
}
template <class T>
Whole<T> max(Whole<T> a, Whole<T> b) {
  return {std::max(a.v, b.v)};
}
template <class T>
Whole<T> min(Whole<T> a, Whole<T> b) {
  return {std::min(a.v, b.v)};
}
template <class T>
bool less(Whole<T> a, Whole<T> b) {
  return a.v < b.v;
}
template <class T>
bool less_equal(Whole<T> a, Whole<T> b) {
  return a.v <= b.v;
}
template <class T>
bool equal(Whole<T> a, Whole<T> b) {
  return a.v == b.v;
}

constexpr std::int64_t kBuffer = 512;

template <class T>
const T* gathered(const Operand& x, std::int64_t begin, std::int64_t n, T* buffer) {
  if (x.is_dense) return reinterpret_cast<const T*>(x.data) + begin;
  T* dst = buffer;
  for_runs(x, begin, n, [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
    const auto* from = reinterpret_cast<const T*>(p);
    for (std::int64_t i = 0; i < count; ++i) *dst++ = from[i * stride];
  });
  return buffer;
}

template <class T, class R, class F>
void apply(const KernelCall& call, F f) {
  const Operand a(call.inputs[0]), b(call.inputs[1]);
  R* y = call.outputs[0].as<R>();
  for_plain_chunks(call, call.outputs[0].count(), [&](std::int64_t begin, std::int64_t n) {
    T a_buffer[kBuffer], b_buffer[kBuffer];
    for (std::int64_t i = begin; i < begin + n; i += kBuffer) {
      const std::int64_t count = std::min(kBuffer, begin + n - i);
      const T* av = gathered(a, i, count, a_buffer);
      const T* bv = gathered(b, i, count, b_buffer);
      for (std::int64_t j = 0; j < count; ++j) y[i + j] = static_cast<R>(f(av[j], bv[j]));
    }
  });
}

template <class F, class T>
void arithmetic(const KernelCall& call) {
  if (call.inputs[0].dtype == DType::kBool) {  // any result but 0 is 1
    return apply<T, T>(call, [](T a, T b) { return F()(Whole<T>{a}, Whole<T>{b}).v != 0; });
  }
  apply<T, T>(call, [](T a, T b) { return F()(Whole<T>{a}, Whole<T>{b}).v; });
}

template <class F, class T>
void compare(const KernelCall& call) {
  apply<T, std::uint8_t>(call, [](T a, T b) { return F()(Whole<T>{a}, Whole<T>{b}); });
}

template <class T>
void run(const KernelCall& call) {
  const std::string_view op = call.op.name;
#define TRACESTEP_RUN(name, functor) \
  if (op == #name) return arithmetic<scalar::functor, T>(call);
  TRACESTEP_BINARY_OPS(TRACESTEP_RUN)
#undef TRACESTEP_RUN
#define TRACESTEP_RUN(name, functor) \
  if (op == #name) return compare<scalar::functor, T>(call);
  TRACESTEP_COMPARE_OPS(TRACESTEP_RUN)
#undef TRACESTEP_RUN
  fail_usage({About::Kind::kOp, std::string(op)},
             "operands of {} have no kernel on the cpu; cast them to f32",
             name_of(call.inputs[0].dtype));
}

}  // namespace

void integer_elementwise(const KernelCall& call) {
  switch (call.inputs[0].dtype) {
    case DType::kI64: run<std::int64_t>(call); break;
    case DType::kI32: run<std::int32_t>(call); break;
    default: run<std::uint8_t>(call); break;
  }
}

}  // namespace tracestep::cpu
