// Where the op matrix names the back ends that it is run on.
#include "backends/cpu/cpu_device.h"
#include "backends/op_matrix.h"

namespace tracestep::testing {

const std::vector<Backend>& backends_under_test() {
  static const std::vector<Backend> all{
      {"cpu", [](int threads) { return make_cpu_device({.threads = threads, .guarded = true}); }}};
  return all;
}

}  // namespace tracestep::testing
