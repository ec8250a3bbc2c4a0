// A device on the host whose work never ends once it hangs, as that of a GPU in a collective to
// which a rank does not come: who waits for it waits for ever.
#pragma once

#include <chrono>
#include <thread>

#include "runtime/host_wait.h"
#include "support/wrapped_device.h"

namespace tracestep::testing {

class HangingDevice final : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  bool is_asynchronous() const override { return true; }
  void synchronize() override {
    const HostWait wait("its device");
    while (hangs) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  bool hangs = false;
};

}  // namespace tracestep::testing
