#include "lab/profile/profiles.h"

#include "ops/functions.h"

namespace tracestep::testing {
namespace {

constexpr std::int64_t kNextStep = 20000;

Program two_nodes() {
  ops::register_all();
  Builder b("two kernels");
  const Val x = b.input("x", {DType::kF32, {4, 8}});
  const Val w = b.parameter("layers.0.ffn.w1.weight", {DType::kF32, {16, 8}});
  Val y;
  {
    const auto scope = b.scope("layers.0.ffn.w1");
    y = ops::linear(x, w);
  }
  const auto scope = b.scope("layers.0.ffn.residual");
  b.output("y", ops::add(y, y));
  return b.finish();
}

Profile empty_profile() {
  Profile p;
  p.spec.step.model.name = "two";
  p.spec.step.model.layers = 1;
  p.spec.step.mode = Mode::kInference;
  p.spec.protocol.recorded_steps = 2;
  p.device = "by hand";
  p.program = two_nodes();
  p.plain = {.wall_ms = 0.008, .issue_ms = 0.002, .span_ms = 0.006};
  for (std::int64_t start : {std::int64_t{0}, kNextStep}) {
    p.steps.push_back({start, start + 2000, start + 10000, start + 1000, start + 7000});
  }
  return p;
}

}  // namespace

ProfileSpec tiny_profile(Mode mode, Granularity ops) {
  ProfileSpec out;
  out.step.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2};
  out.step.shape = {.batch = 2, .context = 16};
  out.step.mode = mode;
  out.step.ops = ops;
  out.protocol = {.warmup = 1, .steps = 2, .recorded_steps = 2};
  return out;
}

Profile two_kernel_profile() {
  Profile p = empty_profile();
  p.source = "executor spans";
  p.names = {"matmul f32", "add f32"};
  for (std::int32_t step : {0, 1}) {
    const std::int64_t at = step * kNextStep;
    p.launches.push_back({step, 0, 0, -1, at + 1000, at + 5000});
    p.launches.push_back({step, 1, 1, -1, at + 6000, at + 7000});
  }
  return p;
}

Profile traced_profile() {
  Profile p = empty_profile();
  p.source = "device profiler";
  p.is_asynchronous = true;
  p.names = {"void split_gemm<float, 2>(float*)", "reduce_splits", "add_kernel"};
  p.trace.names = p.names;
  p.trace.names.push_back("cudaLaunchKernel");
  struct Kernel {
    std::int32_t node, name;
    std::int64_t start, end;
  };
  constexpr Kernel kKernels[] = {{0, 0, 1000, 4000}, {0, 1, 4000, 5000}, {1, 2, 6000, 7000}};
  std::uint32_t correlation = 100;
  for (std::int32_t step : {0, 1}) {
    const std::int64_t at = step * kNextStep;
    std::int64_t call = at + 100;
    for (const Kernel& k : kKernels) {
      Activity a{.node = k.node, .name = k.name, .start_ns = at + k.start, .end_ns = at + k.end};
      a.correlation = ++correlation;
      a.stream = 7;
      a.context = 1;
      a.grid = {4, 2, 1};
      a.block = {128, 1, 1};
      a.registers_per_thread = 32;
      p.launches.push_back({step, k.node, k.name,
                            static_cast<std::int32_t>(p.trace.activities.size()), a.start_ns,
                            a.end_ns});
      p.trace.activities.push_back(a);
      p.trace.calls.push_back({3, call, call + 50, correlation, 42});
      call += 100;
    }
  }
  return p;
}

}  // namespace tracestep::testing
