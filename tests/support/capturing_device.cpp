#include "support/capturing_device.h"

#include <utility>

namespace tracestep::testing {

class CapturingDevice::Kernel final : public PreparedKernel {
 public:
  Kernel(CapturingDevice& device, std::unique_ptr<PreparedKernel> inner)
      : device_(device), inner_(std::move(inner)) {}

  void launch(const LaunchOperands& at, const LaunchContext& context) override {
    if (device_.capturing_ == nullptr) {
      ++device_.launches;
      return device_.run(0, [&] { inner_->launch(at, context); });
    }
    if (device_.capturing_->size() == device_.launches_before_fault) device_.fault();
    const std::vector<void*> inputs(at.inputs.begin(), at.inputs.end());
    const std::vector<void*> outputs(at.outputs.begin(), at.outputs.end());
    device_.graph_nodes_.created(++device_.last_id_);
    device_.capturing_->push_back(
        {device_.last_id_, [this, inputs, outputs, workspace = at.workspace, context] {
           inner_->launch({inputs, outputs, workspace}, context);
         }});
  }

 private:
  CapturingDevice& device_;
  const std::unique_ptr<PreparedKernel> inner_;
};

class CapturingDevice::Work final : public CapturedWork {
 public:
  Work(CapturingDevice& device, Launches launches)
      : device_(device), launches_(std::move(launches)) {
    for (Captured& one : launches_) {
      device_.graph_nodes_.cloned(one.id, ++device_.last_id_);
      one.id = device_.last_id_;
    }
  }
  void launch() override {
    ++device_.replays;
    for (const Captured& one : launches_) device_.run(one.id, one.launch);
  }
  std::int64_t kernels() const override { return static_cast<std::int64_t>(launches_.size()); }

 private:
  CapturingDevice& device_;
  Launches launches_;
};

class CapturingDevice::Tracer final : public ActivityTracer {
 public:
  explicit Tracer(CapturingDevice& device) : device_(device) {}
  void start() override {
    device_.records_ = true;
    device_.activities_.clear();
  }
  void enter(NodeId node) override {
    device_.node_ = node;
    device_.graph_nodes_.set_node(node);
  }
  void leave() override { enter(kWholeStep); }
  bool follows_captures() const override { return device_.follows_captures; }
  ActivityTrace stop() override {
    device_.records_ = false;
    return {.names = {"kernel"}, .activities = std::exchange(device_.activities_, {}), .calls = {}};
  }

 private:
  CapturingDevice& device_;
};

void CapturingDevice::run(std::uint64_t graph_node, const std::function<void()>& launch) {
  Activity a{.node = graph_node == 0 ? node_ : graph_nodes_.node_of(graph_node),
             .start_ns = now_ns(),
             .graph_node = graph_node};
  launch();
  a.end_ns = now_ns();
  if (records_) activities_.push_back(a);
}

std::unique_ptr<ActivityTracer> CapturingDevice::make_activity_tracer(std::string& problem) {
  problem.clear();
  return std::make_unique<Tracer>(*this);
}

std::unique_ptr<PreparedKernel> CapturingDevice::prepare(KernelSpec spec) {
  return std::make_unique<Kernel>(*this, inner().prepare(std::move(spec)));
}

std::unique_ptr<CapturedWork> CapturingDevice::capture(const std::function<void()>& issue) {
  Launches captured;
  ++captures;
  capturing_ = &captured;
  try {
    issue();
  } catch (...) {
    capturing_ = nullptr;
    throw;
  }
  capturing_ = nullptr;
  return std::make_unique<Work>(*this, std::move(captured));
}

}  // namespace tracestep::testing
