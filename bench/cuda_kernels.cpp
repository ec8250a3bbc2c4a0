// CUDA kernels beside what the card can do at best: memory-bound ones against a copy that moves as
// many bytes, float32 products by parts against the library's and float64, and the host time of the
// eager executor against bare loops of launches. All in one run; every time is a median.
//   bench_cuda_kernels [MILLIONS OF ELEMENTS [PART OF A NAME]]: with a name only what it is part of
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "backends/cuda/ceilings.h"
#include "backends/cuda/cuda_device.h"
#include "base/random.h"
#include "exec/executor.h"
#include "op_runner.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

constexpr int kRepeats = 11;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Row {
  std::string name;
  std::string op;
  std::vector<Type> inputs;
  Attrs attrs = {};
  std::vector<int> donated = {};
  std::int64_t bytes = 0;  // moved at least: every input read and every result written once
};

std::string_view wanted;  // part of a name; empty: everything

void print_row(Device& device, const Row& row) {
  if (row.name.find(wanted) == std::string::npos) return;
  OpRunner runner(device, row.op, row.inputs, row.attrs, row.donated);
  const double copy =
      measure_cuda_copy_gb_s(device, std::max<std::int64_t>(row.bytes / 2 / 16 * 16, 1 << 20), 5);
  const auto marks = device.make_marks(2);
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    marks->set(0);
    runner.run();
    marks->set(1);
    times.push_back(static_cast<double>(marks->between_ns(0, 1)));
  }
  const double ns = median(times), gb_s = static_cast<double>(row.bytes) / ns;
  fmt::print("{:<44} {:9.1f} us {:7.0f} GB/s {:6.1f} % of copy ({:.0f})\n", row.name, ns * 1e-3,
             gb_s, 100 * gb_s / copy, copy);
}

void print_memory_bound(Device& device, std::int64_t millions) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const std::int64_t n = millions << 20, e = static_cast<std::int64_t>(size_of(dtype));
    const Type flat{dtype, {n}}, rows{dtype, {n / 4096, 4096}}, short_rows{dtype, {n / 128, 128}};
    const Type scores{dtype, {48, n / (48 * 1024), 1024}};
    const Type logits{dtype, {n / 10000, 10000}}, weight{dtype, {4096}};
    const Type targets{DType::kI64, {n / 10000}}, lse{DType::kF32, {n / 10000}};
    const Type rstd{DType::kF32, {n / 4096}}, one{DType::kF32, {}};
    const Type small{dtype, {2048, 768}};
    const std::string d(name_of(dtype));
    const std::vector<Row> table = {
        {d + " add", "add", {flat, flat}, {}, {}, 3 * n * e},
        {d + " add 2048x768", "add", {small, small}, {}, {}, 3 * small.bytes()},
        {d + " silu", "silu", {flat}, {}, {}, 2 * n * e},
        {d + " swiglu", "swiglu", {flat, flat}, {}, {}, 3 * n * e},
        {d + " swiglu_grad", "swiglu_grad", {flat, flat, flat}, {}, {}, 5 * n * e},
        {d + " rms_norm rows of 4096", "rms_norm", {rows, weight}, {}, {}, 2 * n * e},
        {d + " rms_norm_grad rows of 4096",
         "rms_norm_grad",
         {rows, rows, weight, rstd},
         {},
         {},
         3 * n * e},
        {d + " softmax rows of 1024", "softmax", {scores}, {}, {}, 2 * n * e},
        {d + " softmax causal rows of 1024",
         "softmax",
         {scores},
         {{"causal", true}},
         {},
         3 * n * e / 2},
        {d + " softmax rows of 128", "softmax", {short_rows}, {}, {}, 2 * n * e},
        {d + " softmax_grad rows of 1024", "softmax_grad", {scores, scores}, {}, {}, 3 * n * e},
        {d + " cross_entropy V=10000", "cross_entropy", {logits, targets}, {}, {}, n * e},
        {d + " cross_entropy_grad V=10000",
         "cross_entropy_grad",
         {one, logits, targets, lse},
         {},
         {1},
         2 * n * e},
        {d + " sum of rows of 4096", "sum", {rows}, {{"axes", Dims{1}}}, {}, n * e},
        {d + " sum over rows of 4096", "sum", {rows}, {{"axes", Dims{0}}}, {}, n * e},
        {d + " sum of all", "sum", {flat}, {{"axes", Dims{0}}}, {}, n * e},
        {d + " global_norm", "global_norm", {flat}, {}, {}, n * e}};
    for (const Row& row : table) print_row(device, row);
  }
  const std::int64_t n = millions << 20;
  const Type flat{DType::kF32, {n}}, one{DType::kF32, {}}, low{DType::kBF16, {n}};
  print_row(device,
            {"f32 adamw", "adamw", {flat, flat, flat, flat, one, one}, {}, {0, 2, 3}, 28 * n});
  print_row(device, {"cast f32 to bf16", "cast", {flat}, {{"dtype", DType::kBF16}}, {}, 6 * n});
  print_row(device, {"cast bf16 to f32", "cast", {low}, {{"dtype", DType::kF32}}, {}, 6 * n});
}

// Host time per op of a long chain, against a bare loop measured beside it.
double issue_ns_per_op(Device& device, bool products) {
  constexpr int kOps = 500;
  Builder b("chain");
  const Type type{DType::kF32, {64, 64}};
  Val x = b.input("x", type);
  const Val y = b.input("y", type);
  for (int i = 0; i < kOps; ++i) x = products ? ops::matmul(x, y) : ops::add(x, y);
  b.output("out", x);
  Store store(device);
  const auto executor = make_executor(ExecutorKind::kEager, store, b.finish());
  const HostTensor zeros = HostTensor::zeros(DType::kF32, type.shape);
  executor->set_input("x", zeros);
  executor->set_input("y", zeros);
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    device.synchronize();
    const std::int64_t start = now_ns();
    executor->run();
    times.push_back(static_cast<double>(now_ns() - start) / kOps);
  }
  device.synchronize();
  return median(times);
}

void print_issue_times(Device& device) {
  const double launch = measure_cuda_launch_ns(device, 500);
  const double op = issue_ns_per_op(device, false);
  const double gemm = measure_cuda_gemm_issue_ns(device, 500);
  const double product = issue_ns_per_op(device, true);
  fmt::print(
      "issue: bare launch {:.0f} ns, eager op {:.0f} ns (+{:.0f}); bare cuBLASLt call {:.0f} "
      "ns, eager matmul {:.0f} ns (+{:.0f})\n",
      launch, op, op - launch, gemm, product, product - gemm);
}

// --- float32 products by parts (docs/precision.md) ----------------------------------------------
struct Sizes {
  std::int64_t m, n, k;
};

// y = x · w' of normally distributed numbers.
class Product {
 public:
  Product(Device& device, const Sizes& s, const HostTensor& x, const HostTensor& w, bool by_parts)
      : device_(device), store_(device) {
    Builder b("product");
    const Val a = b.input("x", {DType::kF32, {s.m, s.k}}),
              c = b.input("w", {DType::kF32, {s.n, s.k}});
    b.output("y", b.call1("matmul", {a, c}, {{"transpose_b", true}, {"by_parts", by_parts}}));
    executor_ = make_executor(ExecutorKind::kEager, store_, b.finish());
    executor_->set_input("x", x);
    executor_->set_input("w", w);
    executor_->run();
  }

  double us() {
    const auto marks = device_.make_marks(2);
    std::vector<double> times;
    for (int i = 0; i < kRepeats; ++i) {
      marks->set(0);
      executor_->run();
      marks->set(1);
      times.push_back(static_cast<double>(marks->between_ns(0, 1)) * 1e-3);
    }
    return median(times);
  }
  HostTensor result() { return executor_->output("y"); }

 private:
  Device& device_;
  Store store_;
  std::unique_ptr<Executor> executor_;
};

HostTensor normal_matrix(std::int64_t rows, std::int64_t columns, std::string_view stream) {
  HostTensor out = HostTensor::zeros(DType::kF32, {rows, columns});
  const CounterRng rng(0, stream);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    out.as<float>()[static_cast<std::size_t>(i)] =
        static_cast<float>(rng.normal(static_cast<std::uint64_t>(i)));
  }
  return out;
}

// "largest / root mean square" of the errors of some rows, in units of 2^-24 Σ|x w|.
std::string errors_of(const HostTensor& y, const Sizes& s, const HostTensor& x,
                      const HostTensor& w) {
  constexpr std::int64_t kRows = 16;
  double largest = 0, squares = 0;
  for (std::int64_t r = 0; r < kRows; ++r) {
    const std::int64_t row = r * s.m / kRows;
    const float* a = x.as<float>().data() + row * s.k;
    for (std::int64_t c = 0; c < s.n; ++c) {
      const float* b = w.as<float>().data() + c * s.k;
      double exact = 0, size = 0;
      for (std::int64_t i = 0; i < s.k; ++i) {
        const double term = static_cast<double>(a[i]) * static_cast<double>(b[i]);
        exact += term;
        size += std::abs(term);
      }
      const auto found =
          static_cast<double>(y.as<float>()[static_cast<std::size_t>(row * s.n + c)]);
      const double error = std::abs(found - exact) / (0x1p-24 * size);
      largest = std::max(largest, error);
      squares += error * error;
    }
  }
  return fmt::format("{:.2f} / {:.2f}", largest,
                     std::sqrt(squares / static_cast<double>(kRows * s.n)));
}

void print_product(Device& device, const Sizes& s) {
  const std::string name = fmt::format("f32 product {} x {} x {}", s.m, s.n, s.k);
  if (name.find(wanted) == std::string::npos) return;
  const HostTensor x = normal_matrix(s.m, s.k, "x"), w = normal_matrix(s.n, s.k, "w");
  Product parts(device, s, x, w, true), native(device, s, x, w, false);
  const double us = parts.us(), native_us = native.us();
  const double mega_flops = 2e-6 * static_cast<double>(s.m * s.n * s.k);
  fmt::print(
      "{:<36} by parts {:8.1f} us {:4.0f} TFLOP/s, errors {}; native {:8.1f} us, errors {}\n", name,
      us, mega_flops / us, errors_of(parts.result(), s, x, w), native_us,
      errors_of(native.result(), s, x, w));
}

void print_products(Device& device) {
  const std::vector<Sizes> sizes = {{2048, 768, 768},   {2048, 5120, 1280}, {2048, 1280, 5120},
                                    {1280, 5120, 2048}, {4096, 4096, 4096}, {8192, 8192, 8192}};
  try {
    for (const Sizes& s : sizes) print_product(device, s);
  } catch (const Error& error) {  // no Hopper
    fmt::print("products by parts: {}\n", error.what());
  }
}

void print_ceilings(Device& device) {
  const CudaCeilings c = measure_cuda_ceilings(device);
  fmt::print("copy {:.0f} GB/s\n", c.copy_gb_s);
  for (const auto& p : c.products) {
    fmt::print("matmul {}^3 {}: {:.1f} TFLOP/s\n", p.size, name_of(p.precision), p.tflops);
  }
}

}  // namespace
}  // namespace tracestep

int main(int argc, char** argv) {
  tracestep::ops::register_all();
  const auto device = tracestep::make_cuda_device();
  if (argc > 2) {
    tracestep::wanted = argv[2];
  } else {
    tracestep::print_issue_times(*device);
    tracestep::print_ceilings(*device);
  }
  tracestep::print_products(*device);
  tracestep::print_memory_bound(*device, argc > 1 ? std::atoi(argv[1]) : 128);
  return 0;
}
