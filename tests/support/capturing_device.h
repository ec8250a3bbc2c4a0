// A device that captures: what it launches meanwhile is kept and issued again by a replay. It has a
// profiler of its own, which knows captured launches by ids, as those of GPUs do.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "record/graph_nodes.h"
#include "support/wrapped_device.h"

namespace tracestep::testing {

class CapturingDevice final : public WrappedDevice {
 public:
  explicit CapturingDevice(std::unique_ptr<Device> device) : WrappedDevice(std::move(device)) {}

  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override;
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& issue) override;
  std::unique_ptr<ActivityTracer> make_activity_tracer(std::string& problem) override;

  int launches = 0, captures = 0, replays = 0;
  bool follows_captures = true;  // its profiler
  // Called after so many launches of a capture; throws what breaks it.
  std::function<void()> fault;
  std::size_t launches_before_fault = std::numeric_limits<std::size_t>::max();

 private:
  struct Captured {
    std::uint64_t id = 0;
    std::function<void()> launch;
  };
  using Launches = std::vector<Captured>;
  class Kernel;
  class Work;
  class Tracer;

  // Records what runs in `launch`; `graph_node` as in Activity.
  void run(std::uint64_t graph_node, const std::function<void()>& launch);

  Launches* capturing_ = nullptr;
  GraphNodes graph_nodes_;
  std::uint64_t last_id_ = 0;
  std::int32_t node_ = kWholeStep;  // at hand
  bool records_ = false;
  std::vector<Activity> activities_;
};

}  // namespace tracestep::testing
