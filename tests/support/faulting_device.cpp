#include "support/faulting_device.h"

#include <limits>
#include <vector>

namespace tracestep::testing {

Kernel FaultingDevice::find_kernel(const OpDef& op) const {
  return device_->find_kernel(op) == nullptr ? nullptr : run;
}

void FaultingDevice::run(const KernelCall& call) {
  auto& self = *static_cast<FaultingDevice*>(call.stream);
  self.count_launch(call);
  KernelCall inner = call;
  inner.stream = self.device_->stream();
  self.device_->find_kernel (*call.node.op)(inner);
  if (self.kind_ == FaultKind::kNotFiniteResult && self.launches_left_ == 0) {
    self.spoil(call.outputs[0]);
  }
}

void FaultingDevice::count_launch(const KernelCall& call) {
  if (--launches_left_ != 0) return;
  switch (kind_) {
    case FaultKind::kLostAtLaunch:
      throw DeviceError(name(), call.node.op->name, "the device was lost");
    case FaultKind::kLostAtSynchronize: lost_ = true; break;
    case FaultKind::kNotFiniteResult: break;  // after the launch
    case FaultKind::kOutOfMemory: allocator().set_limit(allocator().stats().requested_bytes); break;
  }
}

// All bits set are NaN in every floating format.
void FaultingDevice::spoil(const TensorRef& result) {
  const auto bytes = result.count() * static_cast<std::int64_t>(size_of(result.dtype));
  const std::vector<std::byte> ones(static_cast<std::size_t>(bytes), std::byte{0xff});
  device_->copy_in(result.data, ones.data(), bytes);
}

void FaultingDevice::throw_if_lost(const char* call) const {
  if (lost_) throw DeviceError(name(), call, "the device was lost");
}

void FaultingDevice::repair() {
  lost_ = false;
  launches_left_ = std::numeric_limits<int>::max();
  allocator().set_limit(0);
}

}  // namespace tracestep::testing
