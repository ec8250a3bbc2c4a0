#include "support/capturing_device.h"

namespace tracestep::testing {

class CapturingDevice::Kernel final : public PreparedKernel {
 public:
  Kernel(CapturingDevice& device, std::unique_ptr<PreparedKernel> inner)
      : device_(device), inner_(std::move(inner)) {}

  void launch(const LaunchOperands& at, const LaunchContext& context) override {
    if (device_.capturing_ == nullptr) {
      ++device_.launches;
      return inner_->launch(at, context);
    }
    if (device_.capturing_->size() == device_.launches_before_fault) device_.fault();
    const std::vector<void*> inputs(at.inputs.begin(), at.inputs.end());
    const std::vector<void*> outputs(at.outputs.begin(), at.outputs.end());
    device_.capturing_->push_back([this, inputs, outputs, workspace = at.workspace, context] {
      inner_->launch({inputs, outputs, workspace}, context);
    });
  }

 private:
  CapturingDevice& device_;
  const std::unique_ptr<PreparedKernel> inner_;
};

class CapturingDevice::Work final : public CapturedWork {
 public:
  explicit Work(CapturingDevice& device) : device_(device) {}
  void launch() override {
    ++device_.replays;
    for (const auto& one : launches) one();
  }

  Launches launches;

 private:
  CapturingDevice& device_;
};

std::unique_ptr<PreparedKernel> CapturingDevice::prepare(KernelSpec spec) {
  return std::make_unique<Kernel>(*this, inner().prepare(std::move(spec)));
}

std::unique_ptr<CapturedWork> CapturingDevice::capture(const std::function<void()>& issue) {
  auto out = std::make_unique<Work>(*this);
  ++captures;
  capturing_ = &out->launches;
  try {
    issue();
  } catch (...) {
    capturing_ = nullptr;
    throw;
  }
  capturing_ = nullptr;
  return out;
}

}  // namespace tracestep::testing
