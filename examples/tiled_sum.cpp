// An op with kernels of one's own, registered from outside: on the CPU here, on a GPU in
// tiled_sum.cu. The same program also runs where there are none, and gives the same numbers.
#include "tiled_sum.h"

#include <map>

#include "analysis/cost.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "exec/executor.h"
#include "passes/form_passes.h"
#include "passes/pipeline.h"
#ifdef TRACESTEP_WITH_CUDA
#include "backends/cuda/cuda_device.h"
#endif

using namespace tracestep;
using Results = std::map<std::string, std::vector<double>>;

constexpr std::int64_t kRows = 37, kWidth = 50;  // no multiples of a tile

// loss = Σ_r y[r]², with its gradients, as the device runs it.
Program program_for(const Device& device) {
  Builder b("tiled_sum");
  const Val x = b.parameter("x", {DType::kF32, {kRows, kWidth}}),
            w = b.parameter("w", {DType::kF32, {kWidth}});
  const Val y = b.call1("tiled_sum", {x, w});
  b.output("y", y);
  b.output("loss", ops::sum(ops::unary("square", y), {0}));
  RunSpec run{.verify = true};
  PassContext context;
  run.mode = Mode::kForwardBackward;
  context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
  return run_pipeline(b.finish(), run, context).program;
}

template <class T>
Results run(Device& device, const Program& program) {
  Store store(device);
  const auto executor = make_executor(ExecutorKind::kEager, store, program);
  for (const char* name : {"x", "w"}) {  // small whole numbers: sums are exact in any order
    HostTensor tensor = store.get(name);
    std::int64_t i = 0;
    for (T& value : tensor.as<T>()) value = static_cast<T>(i++ * 7 % 9 - 4);
    store.set(name, tensor);
  }
  executor->run();
  Results out;
  for (const Output& o : program.outputs) {
    const HostTensor tensor = executor->output(o.name);
    out[o.name].assign(tensor.as<T>().begin(), tensor.as<T>().end());
  }
  return out;
}

int main() {
  register_tiled_sum();
  const auto reference = make_reference_device();
  const Results exact = run<double>(*reference, as_float64(program_for(*reference)));
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(make_cpu_device({.threads = 1}));
  devices.push_back(make_cpu_device({.threads = 1, .add_kernels = add_cpu_kernels}));
#ifdef TRACESTEP_WITH_CUDA
  if (probe_cuda().devices > 0) {
    devices.push_back(make_cuda_device({.add_kernels = add_cuda_kernels}));
  }
#endif
  bool is_right = true;
  for (const auto& device : devices) {
    const Program program = program_for(*device);
    const bool is_own = device->has_kernel(find_op("tiled_sum")),
               same = run<float>(*device, program) == exact;
    fmt::print("{}, {}: {} launches, {} float64\n", device->name(),
               is_own ? "kernels of its own" : "decomposed", launch_count(program),
               same ? "equal to" : "DIFFERS FROM");
    is_right = is_right && same;
  }
  return is_right ? 0 : 1;
}
