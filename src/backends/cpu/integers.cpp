#include "backends/cpu/integers.h"

#include <string_view>
#include <type_traits>

#include "backends/cpu/operand.h"
#include "backends/cpu/plain_chunks.h"

namespace tracestep::cpu {
namespace {

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

template <class T>
void run(const KernelCall& call) {
  using U = std::make_unsigned_t<T>;  // wraps around without undefined behaviour
  const std::string_view op = call.op.name;
  const auto wrapped = [&](auto f) {
    if (call.inputs[0].dtype == DType::kBool) {  // any nonzero sum is 1
      return apply<T, T>(call,
                         [f](T a, T b) { return f(static_cast<U>(a), static_cast<U>(b)) != 0; });
    }
    apply<T, T>(call, [f](T a, T b) { return f(static_cast<U>(a), static_cast<U>(b)); });
  };
  if (op == "add") return wrapped([](U a, U b) { return static_cast<U>(a + b); });
  if (op == "sub") return wrapped([](U a, U b) { return static_cast<U>(a - b); });
  if (op == "mul") {
    return wrapped([](U a, U b) { return static_cast<U>(std::uint64_t{a} * std::uint64_t{b}); });
  }
  if (op == "maximum") return apply<T, T>(call, [](T a, T b) { return std::max(a, b); });
  if (op == "minimum") return apply<T, T>(call, [](T a, T b) { return std::min(a, b); });
  if (op == "eq") return apply<T, std::uint8_t>(call, [](T a, T b) { return a == b; });
  if (op == "lt") return apply<T, std::uint8_t>(call, [](T a, T b) { return a < b; });
  if (op == "le") return apply<T, std::uint8_t>(call, [](T a, T b) { return a <= b; });
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
