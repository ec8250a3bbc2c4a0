// The back ends that compute, the oracle left out: the CPU, and a GPU where the build has the CUDA
// back end and the machine a device. What holds on every back end is tested in a loop over them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace tracestep::testing {

struct DeviceWish {
  int threads = 2;
  bool guarded = false;
  std::int64_t memory_limit = 0;  // bytes; 0: none
};

struct Backend {
  std::string name;
  std::unique_ptr<Device> (*make)(const DeviceWish& wish);
};

const std::vector<Backend>& backends_under_test();
// The back end with this name. Error{kUsage} for a name that is not under test.
const Backend& backend_named(const std::string& name);
// The names of back ends under test, for parameters of test suites.
std::vector<std::string> backend_names();

}  // namespace tracestep::testing
