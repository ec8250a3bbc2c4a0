// A device that captures: what it launches meanwhile is kept and issued again by a replay.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "support/wrapped_device.h"

namespace tracestep::testing {

class CapturingDevice final : public WrappedDevice {
 public:
  explicit CapturingDevice(std::unique_ptr<Device> device) : WrappedDevice(std::move(device)) {}

  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override;
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& issue) override;

  int launches = 0, captures = 0, replays = 0;
  // Called after so many launches of a capture; throws what breaks it.
  std::function<void()> fault;
  std::size_t launches_before_fault = std::numeric_limits<std::size_t>::max();

 private:
  using Launches = std::vector<std::function<void()>>;
  class Kernel;
  class Work;

  Launches* capturing_ = nullptr;
};

}  // namespace tracestep::testing
