#include "support/faulting_device.h"

#include <limits>
#include <vector>

#include "ir/op_def.h"

namespace tracestep::testing {

// The device's own kernel, and the faults around it.
class FaultingDevice::Kernel final : public PreparedKernel {
 public:
  Kernel(FaultingDevice& device, KernelSpec spec)
      : device_(device), spec_(spec), inner_(device.inner().prepare(std::move(spec))) {}

  void launch(const LaunchOperands& operands, const LaunchContext& context) override {
    device_.count_launch(spec_.op->name);
    inner_->launch(operands, context);
    if (device_.kind_ == FaultKind::kNotFiniteResult && device_.launches_left_ == 0) {
      device_.spoil(operands.outputs[0], spec_.outputs[0]);
    }
  }

 private:
  FaultingDevice& device_;
  const KernelSpec spec_;
  const std::unique_ptr<PreparedKernel> inner_;
};

std::unique_ptr<PreparedKernel> FaultingDevice::prepare(KernelSpec spec) {
  return std::make_unique<Kernel>(*this, std::move(spec));
}

void FaultingDevice::count_launch(const std::string& op) {
  if (--launches_left_ != 0) return;
  switch (kind_) {
    case FaultKind::kLostAtLaunch: throw DeviceError(name(), op, "the device was lost");
    case FaultKind::kLostAtSynchronize: lost_ = true; break;
    case FaultKind::kNotFiniteResult: break;  // after the launch
    case FaultKind::kOutOfMemory: allocator().set_limit(allocator().stats().requested_bytes); break;
  }
}

// Fills a result with NaN: in every floating format, all bits set are NaN.
void FaultingDevice::spoil(void* result, const OperandSpec& spec) {
  if (result == nullptr) return;  // empty, or nobody reads it
  const auto bytes = spec.shape.product() * static_cast<std::int64_t>(size_of(spec.dtype));
  const std::vector<std::byte> ones(static_cast<std::size_t>(bytes), std::byte{0xff});
  copy_in(result, ones.data(), bytes);
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
