// A device that breaks in the middle of a step: the device it wraps, until a launch that is
// counted.
#pragma once

#include <memory>

#include "runtime/device.h"

namespace tracestep::testing {

enum class FaultKind {
  kLostAtLaunch,       // the launch fails, as when a driver refuses it
  kLostAtSynchronize,  // the launch succeeds, and the next wait tells of the loss
  kOutOfMemory,        // from this launch on there is no more memory
  kNotFiniteResult,    // the launch leaves NaN in its first result, once
};

class FaultingDevice final : public Device {
 public:
  FaultingDevice(std::unique_ptr<Device> device, FaultKind kind, int launch)
      : device_(std::move(device)), kind_(kind), launches_left_(launch) {}

  const std::string& name() const override { return device_->name(); }
  const DeviceTraits& traits() const override { return device_->traits(); }
  Allocator& allocator() override { return device_->allocator(); }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override;
  bool supports(DType dtype) const override { return device_->supports(dtype); }
  void copy_in(void* device, const void* host, std::int64_t bytes) override {
    device_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::int64_t bytes) override {
    throw_if_lost("copy_out");
    device_->copy_out(host, device, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { device_->zero(device, bytes); }
  void synchronize() override {
    throw_if_lost("synchronize");
    device_->synchronize();
  }
  bool is_asynchronous() const override { return device_->is_asynchronous(); }
  std::unique_ptr<Marks> make_marks(std::size_t count) override {
    return device_->make_marks(count);
  }
  void hold() override { device_->hold(); }
  void release() override { device_->release(); }
  void* stream() override { return device_->stream(); }

  // The next fault: at this launch from now on.
  void break_after(int launches) { launches_left_ = launches; }
  int launches_left() const { return launches_left_; }
  // As if it had been replaced.
  void repair();

 private:
  class Kernel;

  void count_launch(const std::string& op);
  void spoil(void* result, const OperandSpec& spec);
  void throw_if_lost(const char* call) const;

  std::unique_ptr<Device> device_;
  FaultKind kind_;
  int launches_left_;
  bool lost_ = false;
};

}  // namespace tracestep::testing
