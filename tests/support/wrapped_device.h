// A device that passes every call on to another one. Tests override what they watch or break.
#pragma once

#include <memory>
#include <utility>

#include "runtime/device.h"

namespace tracestep::testing {

class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  const std::string& name() const override { return device_->name(); }
  const DeviceTraits& traits() const override { return device_->traits(); }
  Allocator& allocator() override { return device_->allocator(); }
  Allocator& host_allocator() override { return device_->host_allocator(); }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return device_->prepare(std::move(spec));
  }
  bool supports(DType dtype) const override { return device_->supports(dtype); }
  bool computes() const override { return device_->computes(); }
  void copy_in(void* device, const void* host, std::int64_t bytes) override {
    device_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, std::int64_t bytes) override {
    device_->copy_out(host, device, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { device_->zero(device, bytes); }
  void synchronize() override { device_->synchronize(); }
  bool is_asynchronous() const override { return device_->is_asynchronous(); }
  std::unique_ptr<Marks> make_marks(std::size_t count) override {
    return device_->make_marks(count);
  }
  std::int64_t mark_overhead_ns() override { return device_->mark_overhead_ns(); }
  void hold() override { device_->hold(); }
  void release() override { device_->release(); }
  void* stream() override { return device_->stream(); }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& issue) override {
    return device_->capture(issue);
  }

 protected:
  Device& inner() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace tracestep::testing
