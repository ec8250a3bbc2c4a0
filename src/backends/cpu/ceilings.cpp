#include "backends/cpu/ceilings.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "backends/cpu/bf16_products.h"
#include "backends/cpu/targets.h"
#include "backends/cpu/threads.h"
#include "base/integers.h"
#include "ir/builder.h"
#include "planning/needs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/ceilings.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backends/cpu/tile-products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// Independent chains of multiply-adds: twelve hide the latency where two begin per cycle.
constexpr std::int64_t kChains = 12;

// Makes `steps` multiply-adds on each chain, as products of these strips do; returns a result so
// that the compiler does not leave them out.
template <class Strips>
float run_fma(std::int64_t steps) {
  const D d;
  volatile float seed = 1.0f;
  hn::Vec<D> x[kChains];
#pragma GCC unroll 12
  for (std::int64_t c = 0; c < kChains; ++c) x[c] = hn::Set(d, seed * static_cast<float>(c + 1));
  const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, 1e-3f);
  for (std::int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (std::int64_t c = 0; c < kChains; ++c) x[c] = Strips::add(factor, term, x[c]);
  }
  float total = 0;
  for (std::int64_t c = 0; c < kChains; ++c) total += hn::GetLane(x[c]);
  return total;
}

// Copies n numbers, a multiple of 64; addresses are aligned to 64 bytes, here and below.
void run_copy(std::int64_t n, const float* x, float* y) {
  for (std::int64_t i = 0; i < n; i += kLanes) hn::Store(hn::Load(D(), x + i), D(), y + i);
}
void run_copy_streaming(std::int64_t n, const float* x, float* y) {
  for (std::int64_t i = 0; i < n; i += kLanes) hn::Stream(hn::Load(D(), x + i), D(), y + i);
  hwy::FlushStream();
}
void run_triad(std::int64_t n, const float* a, const float* b, float* y) {
  const auto s = hn::Set(D(), 3.0f);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    hn::Store(hn::MulAdd(s, hn::Load(D(), b + i), hn::Load(D(), a + i)), D(), y + i);
  }
}
void run_update(std::int64_t n, const float* g, float* p, float* m, float* v) {
  const auto s = hn::Set(D(), 0.5f);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto x = hn::Load(D(), g + i);
    hn::Store(hn::MulAdd(s, x, hn::Load(D(), p + i)), D(), p + i);
    hn::Store(hn::MulAdd(s, x, hn::Load(D(), m + i)), D(), m + i);
    hn::Store(hn::MulAdd(s, x, hn::Load(D(), v + i)), D(), v + i);
  }
}

}  // namespace

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}
// Returns the floating-point operations of one step of fma_loop().
std::int64_t fma_flops_per_step(Bf16Products way) {
#if HWY_TARGET == HWY_AVX3
  constexpr std::int64_t kOfTiles = 4 * 2 * kTileRows * kTileRows * 2 * kTilePairs;
  if (way == Bf16Products::kTiles) return kOfTiles;
#endif
  return (way == Bf16Products::kPairs ? 2 : 1) * 2 * kChains * kLanes;
}
// Makes `steps` steps of multiply-adds as bfloat16 products do, in float32 where it is widened.
float fma_loop([[maybe_unused]] Bf16Products way, std::int64_t steps) {
#if HWY_TARGET == HWY_AVX3
  if (way == Bf16Products::kPairs) return run_fma<Pairs>(steps);
  if (way == Bf16Products::kTiles) {
    ProcessorTiles tiles;
    tiles.zero<0>(), tiles.zero<1>(), tiles.zero<2>(), tiles.zero<3>();
    tiles.zero<4>(), tiles.zero<5>(), tiles.zero<6>(), tiles.zero<7>();
    for (std::int64_t i = 0; i < steps; ++i) {
      tiles.dot<0, 4, 6>(), tiles.dot<1, 4, 7>(), tiles.dot<2, 5, 6>(), tiles.dot<3, 5, 7>();
    }
    return 0;
  }
#endif
  return run_fma<Floats>(steps);
}
// Runs pass 0: copy, 1: streaming copy, 2: triad, 3: update, on n elements from `begin` on.
void stream_pass(int pass, std::int64_t begin, std::int64_t n, float* const* arrays) {
  float *a = arrays[0] + begin, *b = arrays[1] + begin, *c = arrays[2] + begin;
  switch (pass) {
    case 0: run_copy(n, a, b); break;
    case 1: run_copy_streaming(n, a, b); break;
    case 2: run_triad(n, a, b, c); break;
    default: run_update(n, a, b, c, arrays[3] + begin); break;
  }
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep {
namespace cpu {

HWY_EXPORT(target_name);
HWY_EXPORT(fma_flops_per_step);
HWY_EXPORT(fma_loop);
HWY_EXPORT(stream_pass);

namespace {

const char* best_target() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}
double fma_flops(Bf16Products way, std::int64_t steps) {
  return static_cast<double>(HWY_DYNAMIC_DISPATCH(fma_flops_per_step)(way) * steps);
}
float best_fma_loop(Bf16Products way, std::int64_t steps) {
  return HWY_DYNAMIC_DISPATCH(fma_loop)(way, steps);
}
void best_stream_pass(int pass, std::int64_t begin, std::int64_t n, float* const* arrays) {
  HWY_DYNAMIC_DISPATCH(stream_pass)(pass, begin, n, arrays);
}

}  // namespace
}  // namespace cpu

namespace {

int threads_of(Device& device) {
  return static_cast<const cpu::CpuThreads*>(device.stream())->count;
}

template <class F>
double seconds(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Owns an array in device memory.
class Array {
 public:
  Array(Device& device, std::int64_t bytes)
      : device_(device),
        data_(device.allocator().allocate(
            bytes, {.category = Category::kTemporary, .label = "ceilings"})) {
    std::memset(data_, 0, static_cast<std::size_t>(bytes));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { device_.allocator().free(data_); }
  void* data() const { return data_; }

 private:
  Device& device_;
  void* data_;
};

// Returns the seconds of a pass over all elements by all threads, the least of `repeats` tries.
double best_pass(int threads, int pass, std::int64_t count, float* const* arrays, int repeats) {
  struct Work {
    int pass;
    std::int64_t count, step;
    float* const* arrays;
  };
  // Large stretches, and whole vectors of every target.
  const std::int64_t step =
      std::max<std::int64_t>(4096, count / (std::int64_t{4} * threads) / 64 * 64);
  const Work work{pass, count, step, arrays};
  const auto body = [](const void* context, std::int64_t chunk, int) {
    const Work& w = *static_cast<const Work*>(context);
    const std::int64_t begin = chunk * w.step;
    cpu::best_stream_pass(w.pass, begin, std::min(w.step, w.count - begin), w.arrays);
  };
  // Small arrays are passed over several times: one pass would time the start of the threads.
  const int rounds = static_cast<int>(std::max<std::int64_t>(1, (std::int64_t{1} << 22) / count));
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    best = std::min(best, seconds([&] {
                            for (int r = 0; r < rounds; ++r) {
                              cpu::run_chunks(threads, ceil_div(count, step), body, &work);
                            }
                          }) / rounds);
  }
  return best;
}

ProductCeiling measure_product(Device& device, ProductCeiling p, bool ta, bool tb, int repeats) {
  const Shape a_shape = ta ? Shape{p.k, p.m} : Shape{p.m, p.k};
  const Shape b_shape = tb ? Shape{p.n, p.k} : Shape{p.k, p.n};
  Builder builder("ceilings");
  const Val y = builder.call1(
      "matmul", {builder.input("a", {p.dtype, a_shape}), builder.input("b", {p.dtype, b_shape})},
      {{"transpose_a", ta}, {"transpose_b", tb}});
  const Program& program = builder.program();
  const Node& node = program.nodes.back();
  const Type types[] = {{p.dtype, a_shape}, {p.dtype, b_shape}}, results[] = {y.type()};
  const std::int64_t bytes =
      workspace_bytes({*node.op, node.attrs, types, results}, device.traits());
  const Array a(device, types[0].bytes()), b(device, types[1].bytes()),
      out(device, results[0].bytes()), workspace(device, bytes);
  const auto ref = [](const Array& array, const Type& type) {
    return TensorRef{array.data(), type.dtype, type.shape, contiguous_strides(type.shape)};
  };
  const TensorRef inputs[] = {ref(a, types[0]), ref(b, types[1])};
  const TensorRef outputs[] = {ref(out, results[0])};
  const PreparedLaunch product =
      prepare_at(device, *node.op, node.attrs, inputs, outputs,
                 {static_cast<std::byte*>(workspace.data()), static_cast<std::size_t>(bytes)});
  const LaunchContext context = device.context();
  product.launch(context);
  std::vector<double> times, peaks;
  for (int i = 0; i < repeats; ++i) {
    peaks.push_back(
        measure_fma_gflops(device, p.dtype));  // one of each in turns: both see the same load
    times.push_back(seconds([&] { product.launch(context); }));
  }
  p.gflops = 2e-9 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k) / median(times);
  p.peak_gflops = median(peaks);
  return p;
}

// Measures the three products of linear layers of the models small (768 wide) and medium (1024).
void measure_products(Device& device, const CeilingOptions& options, CpuCeilings& out) {
  constexpr std::array<std::array<std::int64_t, 2>, 5> kLayers = {
      {{768, 768}, {768, 3072}, {3072, 768}, {768, 10000}, {1024, 4096}}};  // in, out
  const std::int64_t t = options.tokens;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& layer : kLayers) {
      const std::int64_t in = layer[0], width = layer[1];
      const auto add = [&](const char* what, std::int64_t m, std::int64_t n, std::int64_t k,
                           bool ta, bool tb) {
        ProductCeiling p{.name = fmt::format("{}x{} {}", in, width, what), .dtype = dtype};
        p.m = m, p.n = n, p.k = k;
        out.products.push_back(measure_product(device, std::move(p), ta, tb, options.repeats));
      };
      add("forward", t, width, in, false, true);
      add("input gradient", t, in, width, false, false);
      add("weight gradient", width, in, t, true, false);
    }
  }
}

}  // namespace

BandwidthCeiling measure_bandwidth(Device& device, std::int64_t array_bytes, int repeats) {
  const std::int64_t count = array_bytes / static_cast<std::int64_t>(sizeof(float));
  const Array a(device, array_bytes), b(device, array_bytes), c(device, array_bytes),
      d(device, array_bytes);
  float* arrays[] = {static_cast<float*>(a.data()), static_cast<float*>(b.data()),
                     static_cast<float*>(c.data()), static_cast<float*>(d.data())};
  const int threads = threads_of(device);
  const auto gb_s = [&](int pass, int streams) {
    const double bytes = static_cast<double>(streams) * static_cast<double>(array_bytes);
    return bytes / best_pass(threads, pass, count, arrays, repeats) * 1e-9;
  };
  return {array_bytes, gb_s(0, 2), gb_s(1, 2), gb_s(2, 3), gb_s(3, 7)};
}

double measure_fma_gflops(Device& cpu, DType operands) {
  using Way = cpu::Bf16Products;
  const int threads = threads_of(cpu);
  const Way way = operands == DType::kBF16 ? cpu::bf16_products() : Way::kWidened;
  struct Work {
    Way way;
    std::int64_t steps;
  };
  // A step of tiles takes about five times as long. Several chunks per thread: on a busy machine
  // the faster thread takes more of them.
  constexpr std::int64_t kChunksPerThread = 8;
  const Work work{way, way == Way::kTiles ? 40'000 : 200'000};
  const auto body = [](const void* context, std::int64_t, int) {
    const Work& w = *static_cast<const Work*>(context);
    volatile float keep = cpu::best_fma_loop(w.way, w.steps);
    static_cast<void>(keep);
  };
  const std::int64_t chunks = kChunksPerThread * threads;
  const double time = seconds([&] { cpu::run_chunks(threads, chunks, body, &work); });
  return cpu::fma_flops(way, work.steps * chunks) / time * 1e-9;
}

double best_fma_gflops(Device& cpu, int runs, DType operands) {
  double best = 0;
  for (int i = 0; i < runs; ++i) best = std::max(best, measure_fma_gflops(cpu, operands));
  return best;
}

Ceilings cpu_ceilings(Device& device) {
  constexpr std::int64_t kArrayBytes = std::int64_t{128} << 20;
  Ceilings out{.arithmetic_gflops = best_fma_gflops(device, 3)};
  const BandwidthCeiling b = measure_bandwidth(device, kArrayBytes, 3);
  const cpu::Bf16Products way = cpu::bf16_products();
  out.bandwidth_gb_s = std::max({b.copy_gb_s, b.copy_streaming_gb_s, b.triad_gb_s, b.update_gb_s});
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const bool widens = dtype != DType::kBF16 || way == cpu::Bf16Products::kWidened;
    out.products_gflops[dtype] = widens ? out.arithmetic_gflops : best_fma_gflops(device, 3, dtype);
  }
  out.how = fmt::format(
      "float32 multiply-adds{} on {} threads; the fastest of copy, triad and update over arrays of "
      "128 MiB",
      way == cpu::Bf16Products::kTiles   ? ", and those of tiles of bfloat16,"
      : way == cpu::Bf16Products::kPairs ? ", and those of pairs of bfloat16,"
                                         : "",
      threads_of(device));
  return out;
}

double CpuCeilings::weighted_share(DType dtype) const {
  double flops = 0, at_peak = 0;  // sums of times: at peak, and as measured
  for (const ProductCeiling& p : products) {
    if (p.dtype != dtype) continue;
    const double work = static_cast<double>(p.m * p.n) * static_cast<double>(p.k);
    flops += work / p.peak_gflops;
    at_peak += work / p.gflops;
  }
  return at_peak > 0 ? flops / at_peak : 0;
}

CpuCeilings measure_cpu_ceilings(Device& device, const CeilingOptions& options) {
  CpuCeilings out;
  out.threads = threads_of(device);
  out.simd = cpu::best_target();
  out.fma_gflops = best_fma_gflops(device, options.repeats);
  for (const std::int64_t mib : {1, 8, 64, 256}) {
    out.bandwidths.push_back(measure_bandwidth(device, mib << 20, options.repeats));
  }
  if (options.with_products) measure_products(device, options, out);
  return out;
}

}  // namespace tracestep
#endif
