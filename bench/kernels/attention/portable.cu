// The portable attention kernels alone: `portable check` compares them with float64 and with the
// unfused path of the same dtype, on shapes, strides and values chosen to break them (`portable
// check 99` where blocks have no more than 99 KiB of shared memory); `portable time` prints
// milliseconds and TFLOP/s (4 B H T^2 D forward, 2.5 times that backward, half when causal).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "oracle.cuh"
#include "portable_problem.cuh"

namespace {

using namespace portable;

struct Oracle {
  std::vector<double> o, lse, dq, dk, dv;
};

std::vector<double> to_host(const double* from, std::int64_t count) {
  std::vector<double> host(count);
  check(cudaMemcpy(host.data(), from, count * 8, cudaMemcpyDeviceToHost), "to_host");
  return host;
}

Oracle run_oracle(const Problem& p, oracle::Rounding rounding) {
  Oracle all;
  const Case& c = p.c;
  const std::int64_t nq = std::int64_t{c.queries} * c.width, nk = std::int64_t{c.keys} * c.width,
                     nn = std::int64_t{c.queries} * c.keys;
  double* memory;
  check(cudaMalloc(&memory, (4 * nq + 4 * nk + 2 * nn + c.queries) * 8), "oracle");
  oracle::Head h{};
  double* next = memory;
  const auto take = [&](std::int64_t n) { return std::exchange(next, next + n); };
  double *q = take(nq), *k = take(nk), *v = take(nk), *d_o = take(nq);
  h.q = q, h.k = k, h.v = v, h.d_o = d_o;
  h.o = take(nq), h.dq = take(nq), h.dk = take(nk), h.dv = take(nk);
  h.p = take(nn), h.ds = take(nn), h.lse = take(c.queries);
  h.queries = c.queries, h.keys = c.keys, h.width = c.width, h.scale = p.shape.scale;
  h.causal = c.causal, h.offset = c.offset, h.rounding = rounding;
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (int bh = 0; bh < c.batch * c.heads; ++bh) {
    widen_kernel<<<64, 256>>>(p.q.view, bh * nq, q, nq);
    widen_kernel<<<64, 256>>>(p.k.view, bh * nk, k, nk);
    widen_kernel<<<64, 256>>>(p.v.view, bh * nk, v, nk);
    widen_kernel<<<64, 256>>>(p.d_o.view, bh * nq, d_o, nq);
    oracle::run(h);
    append(all.o, to_host(h.o, nq));
    append(all.lse, to_host(h.lse, c.queries));
    append(all.dq, to_host(h.dq, nq));
    append(all.dk, to_host(h.dk, nk));
    append(all.dv, to_host(h.dv, nk));
  }
  cudaFree(memory);
  return all;
}

// ||x - reference|| / ||reference||; a reference that is zero but for rounding counts as `least`.
double error_of(const std::vector<double>& x, const std::vector<double>& reference, double least) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == reference[i]) continue;  // both may be -infinity
    const double e = x[i] - reference[i];
    error += e * e;
  }
  for (const double r : reference) norm += std::isfinite(r) ? r * r : 0;
  return std::sqrt(error) / std::max(std::sqrt(norm), least * std::sqrt(x.size()));
}

std::vector<double> values_of(const Tensor& t) {
  const View& v = t.view;
  const std::int64_t count = std::int64_t{v.batch} * v.heads * v.rows * v.width;
  double* memory;
  check(cudaMalloc(&memory, count * 8 + 8), "values");
  widen_kernel<<<256, 256>>>(v, 0, memory, count);
  std::vector<double> host = to_host(memory, count);
  cudaFree(memory);
  return host;
}

const char* name_of(const Case& c) {
  return c.dtype == AttentionDType::kBF16  ? "bf16"
         : c.dtype == AttentionDType::kF16 ? "f16 "
         : c.f32 == AttentionF32::kTF32    ? "tf32"
                                           : "f32 ";
}

bool run_check(const Case& c) {
  Problem p(c);
  p.forward();
  p.backward();
  check(cudaDeviceSynchronize(), "kernels");
  const auto rounding = c.dtype == AttentionDType::kBF16  ? oracle::Rounding::kBF16
                        : c.dtype == AttentionDType::kF16 ? oracle::Rounding::kF16
                                                          : oracle::Rounding::kF32;
  const Oracle exact = run_oracle(p, oracle::Rounding::kNone), unfused = run_oracle(p, rounding);
  std::vector<float> lse32(exact.lse.size());
  check(cudaMemcpy(lse32.data(), p.lse, lse32.size() * 4, cudaMemcpyDeviceToHost), "lse");
  const std::vector<double> lse(lse32.begin(), lse32.end());
  const double size = c.values == Values::kSmallGradient ? 1e-6 : 1;
  const auto error = [](const auto& x, const auto& reference, double scale) {
    return error_of(x, reference, scale);
  };
  struct Row {
    const char* name;
    double ours, theirs;
  };
  const Row rows[] = {
      {"O", error(values_of(p.o), exact.o, 1), error(unfused.o, exact.o, 1)},
      {"L", error(lse, exact.lse, 1), error(unfused.lse, exact.lse, 1)},
      {"dQ", error(values_of(p.dq), exact.dq, size), error(unfused.dq, exact.dq, size)},
      {"dK", error(values_of(p.dk), exact.dk, size), error(unfused.dk, exact.dk, size)},
      {"dV", error(values_of(p.dv), exact.dv, size), error(unfused.dv, exact.dv, size)}};
  const bool f32 = c.dtype == AttentionDType::kF32;
  const double floor = c.f32 == AttentionF32::kTF32 && f32 ? 2e-3
                       : f32                               ? 1e-5
                       : c.dtype == AttentionDType::kF16   ? 1e-4
                                                           : 1e-3;
  bool good = true;
  std::printf("%s %dx%dx%d,%d d%d %s v%d l%d:", name_of(c), c.batch, c.heads, c.queries, c.keys,
              c.width, c.causal ? "causal" : "full", static_cast<int>(c.values), c.layout);
  for (const Row& row : rows) {
    // The unfused path may be lucky, but a score of 10,000 has a last bit of 1e-3.
    const bool is_few_bits = f32 && c.values == Values::kLargeLogits && row.name[1] == 'K';
    const bool fine = row.ours <= std::max(2 * row.theirs, is_few_bits ? 3.5e-4 : floor);
    good &= fine;
    std::printf(" %s %.1e/%.1e%s", row.name, row.ours, row.theirs, fine ? "" : " <-- ");
  }
  for (const Tensor* t : {&p.o, &p.dq, &p.dk, &p.dv}) {
    if (!t->is_guarded()) good = false, std::printf(" GUARD");
  }
  const auto o = p.o.bits(), dq = p.dq.bits(), dk = p.dk.bits(), dv = p.dv.bits();
  for (int repeat = 0; repeat < 3; ++repeat) {
    p.o.poison(), p.dq.poison(), p.dk.poison(), p.dv.poison();
    p.forward();
    p.backward();
    if (p.o.bits() != o || p.dq.bits() != dq || p.dk.bits() != dk || p.dv.bits() != dv) {
      good = false, std::printf(" REPEAT");
    }
  }
  std::printf("%s\n", good ? "" : " FAILED");
  return good;
}

void run_time(const Case& c) {
  Problem p(c);
  const double flops = 4.0 * c.batch * c.heads * c.queries * static_cast<double>(c.keys) * c.width *
                       (c.causal ? 0.5 : 1);
  const double forward = ladder::median_ms(11, [&] { p.forward(); });
  const double backward = ladder::median_ms(11, [&] { p.backward(); });
  std::printf("%s %2dx%2dx%5d d%3d %s  forward %8.4f ms %6.1f TF  backward %8.4f ms %6.1f TF\n",
              name_of(c), c.batch, c.heads, c.queries, c.width, c.causal ? "causal" : "full  ",
              forward, flops / forward * 1e-9, backward, 2.5 * flops / backward * 1e-9);
}

std::vector<Case> check_cases() {
  std::vector<Case> cases;
  const auto bf16 = AttentionDType::kBF16, f16 = AttentionDType::kF16, f32 = AttentionDType::kF32;
  for (const AttentionDType dtype : {bf16, f16, f32}) {
    for (const int width : {16, 32, 64, 80, 96, 128, 256}) {
      cases.push_back({dtype, 1, 2, 300, 300, width, true});
      cases.push_back({dtype, 2, 1, 257, 384, width, false});
    }
    for (const int width : {1, 7, 59, 111, 200})
      cases.push_back({dtype, 1, 2, 131, 131, width, true});
    for (const int rows : {150, 227, 304}) {
      for (const int width : {16, 32, 64, 80, 128}) {
        for (const bool causal : {false, true}) {
          cases.push_back({dtype, 2, 2, rows, rows, width, causal, Values::kLargeLogits});
        }
      }
    }
    for (const bool causal : {false, true}) {
      cases.push_back({dtype, 2, 3, 1, 1, 64, causal});
      cases.push_back({dtype, 1, 2, 1, 197, 64, causal});
      cases.push_back({dtype, 1, 2, 197, 1, 64, causal});
      cases.push_back({dtype, 1, 1, 101, 499, 80, causal});
      cases.push_back({dtype, 1, 1, 499, 101, 128, causal});
      cases.push_back({dtype, 1, 2, 150, 150, 32, causal, Values::kEqual});
      cases.push_back({dtype, 1, 2, 150, 150, 64, causal, Values::kSmallGradient});
      cases.push_back({dtype, 2, 3, 150, 150, 64, causal, Values::kNormal, 1});
      cases.push_back({dtype, 2, 3, 150, 133, 64, causal, Values::kNormal, 2});
      cases.push_back({dtype, 1, 2, 133, 150, 128, causal, Values::kNormal, 2});
    }
    for (const int offset : {60, -60}) {
      Case c{dtype, 1, 2, 200, 200 + offset, 64, true};
      c.offset = offset;
      cases.push_back(c);
      c.width = 128;
      cases.push_back(c);
    }
    cases.push_back({dtype, 1, 1, 1024, 1024, 64, true});
    cases.push_back({dtype, 1, 1, 1024, 1024, 128, false});
    cases.push_back(
        {dtype, 1, 1, 200, 200, 64, true, Values::kNormal, 0, AttentionF32::kSplit3, -0.3F});
  }
  for (const int width : {16, 64, 128, 256}) {
    cases.push_back({f32, 1, 2, 300, 300, width, true, Values::kNormal, 0, AttentionF32::kTF32});
  }
  cases.push_back({f32, 1, 2, 150, 150, 64, true, Values::kSmallGradient, 0, AttentionF32::kTF32});
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (argc > 2) limit_portable_shared_memory(std::atoi(argv[2]) * 1024);
  if (mode == "check") {
    int failed = 0;
    for (const Case& c : check_cases()) failed += !run_check(c);
    std::printf("%d failed\n", failed);
    return failed != 0;
  }
  const auto bf16 = AttentionDType::kBF16, f32 = AttentionDType::kF32;
  for (const bool causal : {true, false}) {
    run_time({bf16, 1, 32, 16384, 16384, 64, causal});
    run_time({bf16, 1, 16, 16384, 16384, 128, causal});
    run_time({bf16, 8, 32, 2048, 2048, 64, causal});
    run_time({bf16, 8, 16, 2048, 2048, 128, causal});
  }
  run_time({bf16, 32, 32, 512, 512, 64, true});
  run_time({bf16, 2, 32, 8192, 8192, 80, true});
  run_time({bf16, 2, 8, 8192, 8192, 256, true});
  for (const int width : {16, 32, 64, 80, 128, 256})
    run_time({f32, 8, 1, 16384, 16384, width, true});
  for (const int width : {64, 128}) {
    run_time({f32, 8, 1, 16384, 16384, width, true, Values::kNormal, 0, AttentionF32::kTF32});
    run_time({f32, 8, 1, 4096, 4096, width, true});
  }
  return 0;
}
