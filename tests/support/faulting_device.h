// A device that breaks in the middle of a step: the device it wraps, until a launch that is
// counted.
#pragma once

#include <memory>

#include "support/wrapped_device.h"

namespace tracestep::testing {

enum class FaultKind {
  kLostAtLaunch,       // the launch fails, as when a driver refuses it
  kLostAtSynchronize,  // the launch succeeds, and the next wait tells of the loss
  kOutOfMemory,        // from this launch on there is no more memory
  kNotFiniteResult,    // the launch leaves NaN in its first result, once
};

class FaultingDevice final : public WrappedDevice {
 public:
  FaultingDevice(std::unique_ptr<Device> device, FaultKind kind, int launch)
      : WrappedDevice(std::move(device)), kind_(kind), launches_left_(launch) {}

  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override;
  void copy_out(void* host, const void* device, std::int64_t bytes) override {
    throw_if_lost("copy_out");
    WrappedDevice::copy_out(host, device, bytes);
  }
  void synchronize() override {
    throw_if_lost("synchronize");
    WrappedDevice::synchronize();
  }

  // Sets when the next fault comes: at this launch from now on.
  void break_after(int launches) { launches_left_ = launches; }
  int launches_left() const { return launches_left_; }
  // Works again, as if the device had been replaced.
  void repair();

 private:
  class Kernel;

  void count_launch(const std::string& op);
  void spoil(void* result, const OperandSpec& spec);
  void throw_if_lost(const char* call) const;

  FaultKind kind_;
  int launches_left_;
  bool lost_ = false;
};

}  // namespace tracestep::testing
