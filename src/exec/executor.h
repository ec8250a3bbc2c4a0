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

// Who listens to the runs of an executor, and for what. Nobody, by default.
struct RunObserver {
  // `act` is called during a run, before the first kernel of `node` or a later node, or at the end
  // if there is none; it may wait for the device and read the allocator. Measurements use pauses to
  // time parts of a step.
  struct Pause {
    NodeId node = kNoNode;
    std::function<void()> act;
  };

  // Where it takes spans, run() waits for the device and adds them, in nanoseconds from the first
  // kernel's start. It holds the device, so such runs ignore pauses.
  Recorder* recorder = nullptr;
  std::vector<Pause> pauses = {};  // sorted by node
  // Is told which node each launch belongs to. Launches are captured anew for it, so that it can
  // follow them, or issued one by one where it cannot.
  ActivityTracer* tracer = nullptr;
  // Rank-0 outputs that the host wants early: output() waits for these alone, not for the rest of
  // the step, on devices that send results early (Device::make_outbox). set_input() after that
  // copies what the rest does not read beside it.
  std::vector<std::string> early = {};
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const Program& program() const = 0;
  virtual const BufferPlan& buffer_plan() const = 0;

  // Copies a host tensor into the input leaf; it stays until it is set again.
  // Throws Error{kUsage}: no such input, another type.
  virtual void set_input(std::string_view name, const TensorView& value) = 0;
  // A number for a floating rank-0 input, in the input's dtype.
  void set_scalar(std::string_view name, double value);
  // Issues one step; on an asynchronous device it may still be running on return. Work issued later
  // sees the updates in the store. Throws OutOfMemory or DeviceError, after freeing all
  // temporaries.
  virtual void run() = 0;
  // Who listens to the next runs, instead of whoever did. Error{kUsage}: no such output.
  virtual void observe(RunObserver observer) = 0;
  virtual const RunObserver& observer() const = 0;
  // Time from the first kernel's start to the last one's end in the last run; waits for it.
  virtual std::int64_t device_span_ns() = 0;
  // An output of the last run, copied to the host; valid until the next run.
  virtual HostTensor output(std::string_view name) const = 0;
  // A floating rank-0 output as a number.
  double scalar(std::string_view name) const;
  // A value, copied to the host; nullopt when it is not alive. During a pause the results of the
  // node before it are alive.
  virtual std::optional<HostTensor> value(ValueId id) const = 0;
  // Gives up the outputs of the last run.
  virtual void release_outputs() = 0;

  // True if the launches were captured, so that later runs issue them as one piece of work.
  virtual bool is_captured() const { return false; }
  // Kernels, copies and fills of a captured run; nullopt where runs are not captured.
  virtual std::optional<std::int64_t> kernels() const { return {}; }
  virtual std::int64_t launches() const = 0;              // per run; each is a kernel or a few
  virtual std::int64_t predicted_peak_bytes() const = 0;  // requested bytes, leaves included
};

// Somebody more listens, as long as this object lives: `add` changes the executor's observer.
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

// Binds the leaves of `program`, which has been materialized, in `store`. Throws Error{kUsage} when
// an op or a dtype has no kernel on the device, OutOfMemory.
std::unique_ptr<Executor> make_executor(ExecutorKind kind, Store& store, Program program);
// The predicted peak of an executor of this kind in bytes, without a device.
std::int64_t predicted_peak_bytes(ExecutorKind kind, const Program& program,
                                  const DeviceTraits& traits);

}  // namespace tracestep
