// What planning needs to know of a device, without the device.
#pragma once

#include <string>

namespace tracestep {

struct DeviceTraits {
  std::string kind = "cpu";  // "cpu", "cuda", "reference"
  int threads = 1;           // host threads that share one kernel (cpu)
};

}  // namespace tracestep
