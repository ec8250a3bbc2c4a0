// The ladder of the Hopper attention kernels: from the plainest version that is right to the one
// that the library uses, one switch at a time, plus what was tried and lost. Every rung is checked
// against double on awkward shapes, with poisoned results; then all are timed in turns. Build and
// run from the root of the repository, on a machine with a Hopper GPU:
//
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -Isrc
//        bench/kernels/attention/hopper.cu src/backends/cuda/attention/tensor_map.cpp -o hopper
//
// `hopper check` ends after the checks (under compute-sanitizer, say), `hopper check NAME` checks
// only the rungs with NAME in theirs. TFLOP/s count 4 B H T^2 D forward and 2.5 times that
// backward, halved when causal.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "backends/cuda/attention/hopper_dispatch.cuh"
#include "harness.cuh"

namespace {

using namespace tracestep::cuda;
using namespace ladder;
using T = __nv_bfloat16;

std::size_t workspace_bytes(const AttentionShape& s, bool is_backward) {
  return std::size_t(attention_workspace(s.extent(), AttentionFamily::kHopper, is_backward).bytes);
}

// Operands and results of one shape, wherever a rung wants them.
struct Problem {
  AttentionShape shape;
  Array<T> q, k, v, o, d_o, dq, dk, dv;
  Array<float> lse;
  Array<char> forward_space, backward_space;
  AttentionForward forward;
  AttentionBackward backward;

  explicit Problem(const AttentionShape& s, float spread = 1)
      : shape(s),
        q(elements(s, s.queries)),
        k(elements(s, s.keys)),
        v(elements(s, s.keys)),
        o(elements(s, s.queries)),
        d_o(elements(s, s.queries)),
        dq(elements(s, s.queries)),
        dk(elements(s, s.keys)),
        dv(elements(s, s.keys)),
        lse(std::size_t(s.batch) * std::size_t(s.heads) * std::size_t(s.queries)),
        forward_space(workspace_bytes(s, false)),
        backward_space(workspace_bytes(s, true)) {
    fill_normal(q, 1, spread);
    fill_normal(k, 2);
    fill_normal(v, 3);
    fill_normal(d_o, 4);
    for (Array<T>* x : {&o, &dq, &dk, &dv}) x->poison();
    lse.poison();
    backward_space.poison();
    const AttentionStrides rows = contiguous(s, s.queries), keys = contiguous(s, s.keys);
    forward = {.shape = s,
               .q = q.data,
               .k = k.data,
               .v = v.data,
               .o = o.data,
               .lse = lse.data,
               .q_strides = rows,
               .k_strides = keys,
               .v_strides = keys,
               .o_strides = rows,
               .workspace = forward_space.data};
    backward = {.shape = s,
                .q = q.data,
                .k = k.data,
                .v = v.data,
                .o = o.data,
                .d_o = d_o.data,
                .lse = lse.data,
                .dq = dq.data,
                .dk = dk.data,
                .dv = dv.data,
                .q_strides = rows,
                .k_strides = keys,
                .v_strides = keys,
                .o_strides = rows,
                .do_strides = rows,
                .dq_strides = rows,
                .dk_strides = keys,
                .dv_strides = keys,
                .workspace = backward_space.data};
  }
  int* counter() { return reinterpret_cast<int*>(forward_space.data); }
};

AttentionShape shape_of(int batch, int heads, int queries, int keys, int width, bool causal,
                        bool deterministic = false, int offset = 0) {
  AttentionShape s;
  s.batch = batch;
  s.heads = heads;
  s.queries = queries;
  s.keys = keys;
  s.width = width;
  s.scale = 1 / std::sqrt(static_cast<float>(width));
  s.causal = causal;
  s.offset = offset;
  s.deterministic = deterministic;
  return s;
}

std::vector<AttentionShape> awkward_shapes(int width, bool causal, bool deterministic) {
  std::vector<AttentionShape> shapes;
  const int sizes[][5] = {{1, 1, 128, 128, 0}, {1, 2, 300, 450, 0},    {1, 2, 300, 450, 150},
                          {2, 2, 523, 211, 0}, {1, 2, 700, 333, -367}, {1, 40, 1021, 1021, 0}};
  for (const auto& n : sizes)
    if (causal || n[4] == 0)
      shapes.push_back(shape_of(n[0], n[1], n[2], n[3], width, causal, deterministic, n[4]));
  return shapes;
}
// Forward alone: one query, and more tiles than a device holds, of few rows or of sections that do
// not divide the heads.
std::vector<AttentionShape> forward_shapes(int width, bool causal) {
  std::vector<AttentionShape> shapes = awkward_shapes(width, causal, false);
  const int sizes[][5] = {{3, 5, 1, 1, 0},          {2, 3, 1, 77, 76},
                          {5, 67, 64, 64, 0},       {1, 170, 193, 320, 64},
                          {1, 170, 257, 129, -128}, {2, 41, 700, 2100, 1400}};
  for (const auto& n : sizes)
    if (causal || n[4] == 0)
      shapes.push_back(shape_of(n[0], n[1], n[2], n[3], width, causal, false, n[4]));
  return shapes;
}

struct Reference {
  Array<double> o, lse, dq, dk, dv;
  explicit Reference(const Problem& p)
      : o(p.o.count), lse(p.lse.count), dq(p.q.count), dk(p.k.count), dv(p.v.count) {
    const AttentionShape& s = p.shape;
    cudaMemset(dk.data, 0, dk.count * sizeof(double));
    cudaMemset(dv.data, 0, dv.count * sizeof(double));
    const int rows = s.batch * s.heads * s.queries, bytes = (s.keys + 1) / 2 * 16;
    reference_forward_kernel<<<rows, 128, bytes>>>(s, p.q.data, p.k.data, p.v.data, o.data,
                                                   lse.data);
    reference_backward_kernel<<<rows, 128, bytes>>>(
        s, p.q.data, p.k.data, p.v.data, o.data, lse.data, p.d_o.data, dq.data, dk.data, dv.data);
    check(cudaDeviceSynchronize(), "reference");
  }
};

template <class A, class B>
bool is_near(const Array<A>& x, const Array<B>& y, double bar) {
  std::vector<double> a = to_host(x), b = to_host(y);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isinf(b[i]) && a[i] == b[i]) a[i] = b[i] = 0;  // rows that see no key
  return relative_error(a, b) < bar;
}

using Launch = std::function<cudaError_t(Problem&)>;
constexpr double kBar = 1e-2;  // two roundings to bfloat16

bool check_forward(const Launch& launch, int width, bool causal) {
  bool ok = true;
  for (const AttentionShape& s : forward_shapes(width, causal)) {
    Problem p(s, 3);
    const Reference right(p);
    check(launch(p), "forward");
    check(cudaDeviceSynchronize(), "forward");
    ok = ok && is_near(p.o, right.o, kBar) && is_near(p.lse, right.lse, 1e-4);
  }
  return ok;
}

// What a backward rung needs from forward; all rungs are causal, of width 64 or 128.
cudaError_t plain_forward(Problem& p) {
  return p.shape.width == 64
             ? launch_hopper_forward<TunedForward<T, 64, true, ForwardForm::kPair>>(p.forward,
                                                                                    nullptr, {})
             : launch_hopper_forward<TunedForward<T, 128, true, ForwardForm::kPair>>(p.forward,
                                                                                     nullptr, {});
}

bool check_backward(const Launch& launch, int width, bool causal, bool deterministic) {
  bool ok = true;
  for (const AttentionShape& s : awkward_shapes(width, causal, deterministic)) {
    Problem p(s, 2);
    const Reference right(p);
    check(plain_forward(p), "forward");
    check(launch(p), "backward");
    check(cudaDeviceSynchronize(), "backward");
    ok = ok && is_near(p.dq, right.dq, kBar) && is_near(p.dk, right.dk, kBar) &&
         is_near(p.dv, right.dv, kBar);
  }
  return ok;
}

// --- the rungs
// ------------------------------------------------------------------------------------ Forward,
// from the bottom: each struct adds one thing to the one before.
template <int kD, int kN, int kGroups = 2>
struct OneBlock : ForwardTraits<T, kD, kGroups, kN, true> {
  static constexpr int kStages = 1, kQStages = 1;
  static constexpr bool kOverlap = false, kTurns = false, kSections = false;
  static constexpr float kThreshold = 0;
};
struct TwoBlocks : OneBlock<128, 128> {
  static constexpr int kStages = 2;
};
struct Overlapped : TwoBlocks {
  static constexpr bool kOverlap = true;
};
struct InTurns : Overlapped {
  static constexpr bool kTurns = true;
};
struct RarelyRescaled : InTurns {
  static constexpr float kThreshold = 8;
};
struct EarlyQ : RarelyRescaled {
  static constexpr int kQStages = 2;
};
using Tuned128 = TunedForward<T, 128, true, ForwardForm::kPair>;
template <class Traits>
struct Untaken : Traits {
  static constexpr bool kTurns = false;
};
template <class Traits>
struct HeadByHead : Traits {
  static constexpr bool kSections = false;
};
// Width 64: two or three warpgroups, two teams of two, four.
using Two64 = HeadByHead<TunedForward<T, 64, true, ForwardForm::kPair>>;
using Long64 = TunedForward<T, 64, true, ForwardForm::kTrio>;
using Short64 = TunedForward<T, 64, true, ForwardForm::kTeams>;
struct Four64 : ForwardTraits<T, 64, 4, 64, true> {
  static constexpr int kStages = 3;
};
struct BackwardInOrder : BackwardTraits<T, 128, 64, true> {
  static constexpr int kQStages = 1;
  static constexpr bool kAhead = false;
};
struct BackwardTwoBlocks : BackwardInOrder {
  static constexpr int kQStages = 2;
};
using BackwardTuned = TunedBackward<T, 128, true, false>;
struct BackwardEarly : BackwardTuned {
  static constexpr bool kLateValues = false, kEarlyKeys = false;
};
struct BackwardInOrder64 : BackwardTraits<T, 64, 128, true> {
  static constexpr bool kAhead = false;
};
using BackwardTuned64 = TunedBackward<T, 64, true, false>;

template <class Traits>
Launch forward_rung(bool by_counter) {
  return [by_counter](Problem& p) {
    return launch_hopper_forward<Traits>(p.forward, by_counter ? p.counter() : nullptr, {});
  };
}
template <class Traits>
Launch backward_rung() {
  return [](Problem& p) { return launch_hopper_backward<Traits>(p.backward, 1, {}); };
}

struct Rung {
  const char* name;
  AttentionShape shape;
  bool is_forward;
  Launch launch;
  Problem* problem = nullptr;
  bool ok = false;
  std::vector<double> ms{};
};

std::vector<Rung> rungs() {
  const AttentionShape wide = shape_of(1, 16, 16384, 16384, 128, true);
  const AttentionShape narrow = shape_of(1, 32, 16384, 16384, 64, true);
  const AttentionShape short64 = shape_of(32, 32, 512, 512, 64, true);
  const AttentionShape middle64 = shape_of(8, 32, 2048, 2048, 64, true);
  AttentionShape ordered = wide, ordered64 = narrow;
  ordered.deterministic = ordered64.deterministic = true;
  return {
      {"one block of keys at a time", wide, true, forward_rung<OneBlock<128, 128>>(false)},
      {"+ loads of the next block", wide, true, forward_rung<TwoBlocks>(false)},
      {"+ tiles from a counter", wide, true, forward_rung<TwoBlocks>(true)},
      {"+ next scores under softmax", wide, true, forward_rung<Overlapped>(true)},
      {"+ warpgroups in turns", wide, true, forward_rung<InTurns>(true)},
      {"+ O rescaled when needed", wide, true, forward_rung<RarelyRescaled>(true)},
      {"+ next Q early", wide, true, forward_rung<EarlyQ>(true)},
      {"+ sections: the library's", wide, true, forward_rung<Tuned128>(true)},
      {"  the same without turns", wide, true, forward_rung<Untaken<Tuned128>>(true)},
      {"D 64, two warpgroups", narrow, true, forward_rung<Two64>(true)},
      {"D 64, three", narrow, true, forward_rung<HeadByHead<Long64>>(true)},
      {"D 64, + sections: library's", narrow, true, forward_rung<Long64>(true)},
      {"D 64, two teams of two", narrow, true, forward_rung<Short64>(true)},
      {"512 tokens, two warpgroups", short64, true, forward_rung<Two64>(true)},
      {"512, three", short64, true, forward_rung<HeadByHead<Long64>>(true)},
      {"512, two teams of two", short64, true, forward_rung<HeadByHead<Short64>>(true)},
      {"512, + sections: the library's", short64, true, forward_rung<Short64>(true)},
      {"  the same without turns", short64, true, forward_rung<Untaken<Short64>>(true)},
      {"  four warpgroups of a tile", short64, true, forward_rung<Four64>(true)},
      {"2048 tokens, two warpgroups", middle64, true, forward_rung<Two64>(true)},
      {"2048, three, sections", middle64, true, forward_rung<Long64>(true)},
      {"2048, two teams: the library's", middle64, true, forward_rung<Short64>(true)},
      {"one block of Q at a time", wide, false, backward_rung<BackwardInOrder>()},
      {"+ loads of the next Q", wide, false, backward_rung<BackwardTwoBlocks>()},
      {"+ next scores early: library's", wide, false, backward_rung<BackwardTuned>()},
      {"  dV before dS, dK left running", wide, false, backward_rung<BackwardEarly>()},
      {"  the library's, dQ in order", ordered, false, backward_rung<BackwardTuned>()},
      {"D 64, scores in order", narrow, false, backward_rung<BackwardInOrder64>()},
      {"D 64, + early: library's", narrow, false, backward_rung<BackwardTuned64>()},
      {"  the library's, dQ in order", ordered64, false, backward_rung<BackwardTuned64>()},
  };
}

// Everybody in turns, in another order every round and after a pause: who follows a hungry kernel
// at once meets a lower clock.
void time_in_turns(const std::vector<Rung*>& all, int rounds) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<Rung*> order = all;
  std::mt19937 random(1);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (Rung* rung : order) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      check(rung->launch(*rung->problem), rung->name);
      cudaEventRecord(begin);
      const int launches = rung->shape.queries > 4096 ? 4 : 20;
      for (int k = 0; k < launches; ++k) check(rung->launch(*rung->problem), rung->name);
      cudaEventRecord(end);
      check(cudaEventSynchronize(end), rung->name);
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      rung->ms.push_back(ms / static_cast<float>(launches));
    }
  }
}

// As an exit status.
int all_right(const std::vector<Rung>& all) {
  return std::all_of(all.begin(), all.end(), [](const Rung& r) { return r.ok; }) ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const bool only_check = count > 1 && std::string(arguments[1]) == "check";
  std::vector<Rung> all = rungs();
  if (only_check && count > 2)
    std::erase_if(all, [&](const Rung& rung) {
      return std::string(rung.name).find(arguments[2]) == std::string::npos;
    });
  std::map<std::string, std::unique_ptr<Problem>> problems;
  for (Rung& rung : all) {
    const AttentionShape& s = rung.shape;
    rung.ok = rung.is_forward ? check_forward(rung.launch, s.width, s.causal)
                              : check_backward(rung.launch, s.width, s.causal, s.deterministic);
    if (only_check) {
      std::printf("%s: %s\n", rung.name, rung.ok ? "right" : "WRONG");
      continue;
    }
    auto& problem = problems[std::to_string(s.width) + " x " + std::to_string(s.queries) +
                             (s.deterministic ? " ordered" : "")];
    if (problem == nullptr) problem = std::make_unique<Problem>(s);
    rung.problem = problem.get();
    check(plain_forward(*problem), "forward");
  }
  if (only_check) return all_right(all);
  std::vector<Rung*> timed;
  for (Rung& rung : all) timed.push_back(&rung);
  time_in_turns(timed, 11);
  std::printf("| rung | pass | checked | ms | TFLOP/s |\n|---|---|---|---:|---:|\n");
  for (Rung& rung : all) {
    std::sort(rung.ms.begin(), rung.ms.end());
    const AttentionShape& s = rung.shape;
    const double ms = rung.ms[rung.ms.size() / 2];
    const double flops = 2.0 * s.batch * s.heads * double(s.queries) * s.keys * s.width *
                         (rung.is_forward ? 1.0 : 2.5);
    std::printf("| %s | %s | %s | %.3f | %.0f |\n", rung.name,
                rung.is_forward ? "forward" : "backward", rung.ok ? "yes" : "WRONG", ms,
                flops / ms / 1e9);
  }
  return all_right(all);
}
