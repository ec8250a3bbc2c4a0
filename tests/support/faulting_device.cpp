#include "support/faulting_device.h"

#include <limits>

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
}

void FaultingDevice::count_launch(const KernelCall& call) {
  if (--launches_left_ != 0) return;
  switch (kind_) {
    case FaultKind::kLostAtLaunch:
      throw DeviceError(name(), call.node.op->name, "the device was lost");
    case FaultKind::kLostAtSynchronize: lost_ = true; break;
    case FaultKind::kOutOfMemory: allocator().set_limit(allocator().stats().requested_bytes); break;
  }
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
