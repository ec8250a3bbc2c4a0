#include "support/backends.h"

#include "backends/cpu/cpu_device.h"
#ifdef TRACESTEP_WITH_CUDA
#include "backends/cuda/cuda_device.h"
#endif

namespace tracestep::testing {
namespace {

std::unique_ptr<Device> make_cpu(const DeviceWish& wish) {
  return make_cpu_device(
      {.threads = wish.threads, .guarded = wish.guarded, .memory_limit = wish.memory_limit});
}

#ifdef TRACESTEP_WITH_CUDA
std::unique_ptr<Device> make_cuda(const DeviceWish& wish) {
  return make_cuda_device({.guarded = wish.guarded, .memory_limit = wish.memory_limit});
}
#endif

std::vector<Backend> find_backends() {
  std::vector<Backend> out{{"cpu", make_cpu}};
#ifdef TRACESTEP_WITH_CUDA
  if (probe_cuda().devices > 0) out.push_back({"cuda", make_cuda});
#endif
  return out;
}

}  // namespace

const std::vector<Backend>& backends_under_test() {
  static const std::vector<Backend> all = find_backends();
  return all;
}

const Backend& backend_named(const std::string& name) {
  for (const Backend& backend : backends_under_test()) {
    if (backend.name == name) return backend;
  }
  fail_usage("test", "no back end '{}' is under test", name);
}

std::vector<std::string> backend_names() {
  std::vector<std::string> out;
  for (const Backend& backend : backends_under_test()) out.push_back(backend.name);
  return out;
}

}  // namespace tracestep::testing
