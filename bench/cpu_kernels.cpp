// CPU kernels beside what the machine can do at best: matrix products against the multiply-add
// peak, the others against a triad that moves as many bytes. Both sides of a ratio are measured in
// turns; every figure is the median.
//   bench_cpu_kernels [THREADS]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "backends/cpu/ceilings.h"
#include "backends/cpu/cpu_device.h"
#include "op_runner.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

constexpr int kRepeats = 15;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Row {
  std::string name;
  std::string op;
  std::vector<Type> inputs;
  Attrs attrs = {};
  std::vector<int> donated = {};
  std::int64_t elements = 0;
  std::int64_t bytes = 0;  // moved at least, by every element once
  bool is_update = false;  // its floor is the in-place update, not the triad
};

void print_row(Device& device, const Row& row) {
  OpRunner runner(device, row.op, row.inputs, row.attrs, row.donated);
  const std::int64_t streams = row.is_update ? 7 : 3;
  const std::int64_t array_bytes =
      std::max<std::int64_t>(1 << 20, row.bytes / streams / 4096 * 4096);
  std::vector<double> times, floors;
  for (int i = 0; i < kRepeats; ++i) {
    times.push_back(seconds([&] { runner.run(); }));
    if (i % 5 != 0) continue;
    const BandwidthCeiling best = measure_bandwidth(device, array_bytes, 5);
    const double gb_s = row.is_update ? best.update_gb_s : best.triad_gb_s;
    floors.push_back(static_cast<double>(row.bytes) / gb_s * 1e-9);
  }
  const double time = median(times), floor = median(floors);
  fmt::print("{:<34} {:8.3f} ms {:8.3f} ns/element {:7.1f} GB/s {:6.2f} x floor\n", row.name,
             time * 1e3, time * 1e9 / static_cast<double>(row.elements),
             static_cast<double>(row.bytes) / time * 1e-9, time / floor);
}

void print_memory_bound(Device& device) {
  const Type hidden{DType::kF32, {2048, 768}}, wide{DType::kF32, {2048, 3072}};
  const Type scores{DType::kF32, {48, 512, 512}}, weight{DType::kF32, {768}};
  const Type cached{DType::kF32, {128, 896}};  // with its result in the L2 caches of two cores
  const Type logits{DType::kF32, {2048, 10000}}, targets{DType::kI64, {2048}};
  const Type flat{DType::kF32, {1 << 25}}, one{DType::kF32, {}}, rows{DType::kF32, {2048}};
  const std::int64_t n_hidden = hidden.count(), n_wide = wide.count(), n_scores = scores.count();
  const std::vector<Row> table = {
      {"add 2048x3072", "add", {wide, wide}, {}, {}, n_wide, 12 * n_wide},
      {"add 2048x3072 in place", "add", {wide, wide}, {}, {0}, n_wide, 12 * n_wide},
      {"silu 2048x3072", "silu", {wide}, {}, {}, n_wide, 8 * n_wide},
      {"silu 128x896, cached", "silu", {cached}, {}, {}, cached.count(), 8 * cached.count()},
      {"softmax 128x896, cached", "softmax", {cached}, {}, {0}, cached.count(), 8 * cached.count()},
      {"swiglu 2048x3072", "swiglu", {wide, wide}, {}, {}, n_wide, 12 * n_wide},
      {"swiglu_grad 2048x3072", "swiglu_grad", {wide, wide, wide}, {}, {1, 2}, n_wide, 20 * n_wide},
      {"rms_norm 2048x768", "rms_norm", {hidden, weight}, {}, {}, n_hidden, 8 * n_hidden},
      {"rms_norm_grad 2048x768",
       "rms_norm_grad",
       {hidden, hidden, weight, rows},
       {},
       {0},
       n_hidden,
       12 * n_hidden},
      {"softmax 48x512x512", "softmax", {scores}, {}, {0}, n_scores, 8 * n_scores},
      {"softmax causal 48x512x512",
       "softmax",
       {scores},
       {{"causal", true}},
       {0},
       n_scores,
       6 * n_scores},
      {"softmax_grad 48x512x512",
       "softmax_grad",
       {scores, scores},
       {},
       {0},
       n_scores,
       12 * n_scores},
      {"cross_entropy 2048x10000",
       "cross_entropy",
       {logits, targets},
       {},
       {},
       logits.count(),
       4 * logits.count()},
      {"cross_entropy_grad 2048x10000",
       "cross_entropy_grad",
       {one, logits, targets, rows},
       {},
       {1},
       logits.count(),
       8 * logits.count()},
      {"sum over rows 2048x3072", "sum", {wide}, {{"axes", Dims{0}}}, {}, n_wide, 4 * n_wide},
      {"global_norm 33.5M", "global_norm", {flat}, {}, {}, flat.count(), 4 * flat.count()},
      {"adamw 33.5M",
       "adamw",
       {flat, flat, flat, flat, one, one},
       {},
       {0, 2, 3},
       flat.count(),
       28 * flat.count(),
       true}};
  for (const Row& row : table) print_row(device, row);
}

void print_products(Device& device) {
  const CpuCeilings c = measure_cpu_ceilings(device);
  fmt::print("{} threads, {}, {:.0f} GFLOP/s multiply-add\n", c.threads, c.simd, c.fma_gflops);
  for (const BandwidthCeiling& b : c.bandwidths) {
    fmt::print(
        "{:>5} MiB arrays: copy {:.1f}, streaming {:.1f}, triad {:.1f}, update {:.1f} GB/s\n",
        b.array_bytes >> 20, b.copy_gb_s, b.copy_streaming_gb_s, b.triad_gb_s, b.update_gb_s);
  }
  for (const ProductCeiling& p : c.products) {
    fmt::print("{:<5} {:<28} {:7.1f} GFLOP/s {:5.1f} % of peak\n", name_of(p.dtype), p.name,
               p.gflops, 100 * p.share());
  }
  fmt::print("weighted: f32 {:.1f} %, bf16 {:.1f} %\n", 100 * c.weighted_share(DType::kF32),
             100 * c.weighted_share(DType::kBF16));
}

}  // namespace
}  // namespace tracestep

int main(int argc, char** argv) {
  tracestep::ops::register_all();
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const auto device = tracestep::make_cpu_device({.threads = threads});
  tracestep::print_products(*device);
  tracestep::print_memory_bound(*device);
  return 0;
}
