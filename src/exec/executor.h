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
  // temporaries. With a recorder that takes spans, run() waits for the device and adds the spans,
  // in nanoseconds from the first kernel's start.
  virtual void run(Recorder* recorder = nullptr) = 0;
  // `act` is called during a run, before the first kernel of `node` or a later node, or at the end
  // if there is none; it may wait for the device and read the allocator. Measurements use pauses to
  // time parts of a step.
  struct Pause {
    NodeId node = kNoNode;
    std::function<void()> act;
  };
  // Sorted by node. Runs that record spans hold the device, so they ignore pauses.
  virtual void set_pauses(std::vector<Pause> pauses) = 0;
  // Tells `tracer` which node each launch belongs to, until it is set to nullptr. Launches are then
  // captured anew, so that the tracer can follow them, or issued one by one where it cannot.
  virtual void set_tracer(ActivityTracer* tracer) = 0;
  // From the first kernel's start to the last one's end in the last run; waits for it.
  virtual std::int64_t device_span_ns() = 0;
  // Before the first run: output() waits for these rank-0 outputs alone, not for the rest of the
  // step, on devices that send results early (Device::make_outbox). set_input() after that copies
  // what the rest does not read beside it.
  virtual void send_early(std::span<const std::string> outputs) = 0;
  // An output of the last run, copied to the host; valid until the next run.
  virtual HostTensor output(std::string_view name) const = 0;
  // A floating rank-0 output as a number.
  double scalar(std::string_view name) const;
  // A value, copied to the host; nullopt when it is not alive. During a pause the results of the
  // node before it are alive.
  virtual std::optional<HostTensor> value(ValueId id) const = 0;
  // Gives up the outputs of the last run.
  virtual void release_outputs() = 0;

  // Whether the launches were captured, so that later runs issue them as one piece of work.
  virtual bool is_captured() const { return false; }
  // Kernels, copies and fills of a captured run; nullopt where runs are not captured.
  virtual std::optional<std::int64_t> kernels() const { return {}; }
  virtual std::int64_t launches() const = 0;              // per run; each is a kernel or a few
  virtual std::int64_t predicted_peak_bytes() const = 0;  // requested bytes, leaves included
};

// Binds the leaves of `program`, which has been materialized, in `store`. Throws Error{kUsage} when
// an op or a dtype has no kernel on the device, OutOfMemory.
std::unique_ptr<Executor> make_executor(ExecutorKind kind, Store& store, Program program);
// The predicted peak of that executor in bytes, without a device.
std::int64_t predicted_peak_bytes(ExecutorKind kind, const Program& program,
                                  const DeviceTraits& traits);

}  // namespace tracestep
