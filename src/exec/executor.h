// A way to run a program: the interface that training and measurements use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/buffer_plan.h"
#include "base/host_tensor.h"
#include "ir/program.h"
#include "record/recorder.h"
#include "run/words.h"
#include "runtime/store.h"

namespace tracestep {

// What is observed during the runs of an executor; by default nothing.
struct RunObserver {
  // `act` is called during a run, before the first kernel of `node` or a later node, or at the end
  // if there is none; it may wait for the device and read the allocator. Measurements use pauses to
  // time parts of a step.
  struct Pause {
    NodeId node = kNoNode;
    std::function<void()> act;
  };

  // If it records spans, run() waits for the device and adds them, in nanoseconds from the first
  // kernel's start. Such runs hold the device back while they issue, so they ignore pauses.
  Recorder* recorder = nullptr;
  std::vector<Pause> pauses = {};  // sorted by node
  // A profiler that is told which node each launch belongs to. Launches are captured anew for it if
  // it can follow captures; if not, they are issued one by one.
  ActivityTracer* tracer = nullptr;
  // Rank-0 outputs that the host needs early: output() waits for these only, not for the rest of
  // the step, on devices that can send results early (Device::make_outbox). A set_input() after
  // that copies inputs which the rest of the step does not read, while that rest runs.
  std::vector<std::string> early = {};
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const Program& program() const = 0;
  virtual const BufferPlan& buffer_plan() const = 0;

  // Copies a host tensor into an input leaf, which keeps it until it is set again. Throws
  // Error{kUsage} if there is no such input or it has another type.
  virtual void set_input(std::string_view name, const TensorView& value) = 0;
  // Sets a floating rank-0 input to a number, in the input's dtype.
  void set_scalar(std::string_view name, double value);
  // Issues one step; on an asynchronous device it may still be running on return. Work issued later
  // sees the updates in the store. Throws OutOfMemory or DeviceError, after freeing all
  // temporaries.
  virtual void run() = 0;
  // Sets the observer of the next runs, in place of the one before. Throws Error{kUsage} if it
  // names an output that does not exist.
  virtual void observe(RunObserver observer) = 0;
  virtual const RunObserver& observer() const = 0;
  // Returns the time from the first kernel's start to the last one's end in the last run, which it
  // waits for.
  virtual std::int64_t device_span_ns() = 0;
  // Returns an output of the last run, copied to the host; valid until the next run.
  virtual HostTensor output(std::string_view name) const = 0;
  // Returns a floating rank-0 output as a number.
  double scalar(std::string_view name) const;
  // Copies a value to the host; nullopt if it is not alive. During a pause, the results of the node
  // before it are alive.
  virtual std::optional<HostTensor> value(ValueId id) const = 0;
  // Frees the outputs of the last run, which then cannot be read any more.
  virtual void release_outputs() = 0;

  // True if the launches were captured, so that later runs replay them as one.
  virtual bool is_captured() const { return false; }
  // Returns how many kernels, copies and fills a captured run has; nullopt: runs are not captured.
  virtual std::optional<std::int64_t> kernels() const { return {}; }
  // Returns how many launches a run has; each starts one kernel or a few.
  virtual std::int64_t launches() const = 0;
  // Returns the predicted peak of requested bytes, including leaves.
  virtual std::int64_t predicted_peak_bytes() const = 0;
};

// Adds something to an executor's observer for the lifetime of this object; `add` changes the
// observer.
class Observation {
 public:
  template <class Add>
  Observation(Executor& executor, const Add& add)
      : executor_(executor), before_(executor.observer()) {
    RunObserver observer = before_;
    add(observer);
    executor_.observe(std::move(observer));
  }
  ~Observation() { executor_.observe(std::move(before_)); }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

 private:
  Executor& executor_;
  RunObserver before_;
};

// Makes an executor and binds the leaves of `program`, which must be materialized, in `store`.
// Throws Error{kUsage} if an op or a dtype has no kernel on the device, and OutOfMemory.
std::unique_ptr<Executor> make_executor(ExecutorKind kind, Store& store, Program program);
// Returns the predicted peak of an executor of this kind in bytes, without a device.
std::int64_t predicted_peak_bytes(ExecutorKind kind, const Program& program,
                                  const DeviceTraits& traits);

}  // namespace tracestep
