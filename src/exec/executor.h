// What the lab needs of a way to run a program.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/host_tensor.h"
#include "ir/program.h"
#include "record/recorder.h"
#include "runtime/store.h"

namespace tracestep {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const Program& program() const = 0;

  // Copies a host tensor into the input leaf; it stays until it is set again.
  // Throws Error{kUsage}: no such input, another type.
  virtual void set_input(std::string_view name, const TensorView& value) = 0;
  // A number for a floating rank-0 input, in the input's dtype.
  void set_scalar(std::string_view name, double value);
  // Issues one step; on an asynchronous device it may still be running afterwards. Updates are in
  // the store for whatever is issued next. Throws OutOfMemory, DeviceError; all temporaries are
  // freed then. With a recorder that takes spans, run() waits for the device and adds the
  // spans, in nanoseconds from the first kernel's start.
  virtual void run(Recorder* recorder = nullptr) = 0;
  // Tells `tracer` which node each launch belongs to, until it is set to nullptr.
  virtual void set_tracer(ActivityTracer* tracer) = 0;
  // From the first kernel's start to the last one's end in the last run; waits for it.
  virtual std::int64_t device_span_ns() = 0;
  // An output of the last run, copied to the host; valid until the next run.
  virtual HostTensor output(std::string_view name) const = 0;
  // The same for a floating rank-0 output.
  double scalar(std::string_view name) const;
  // Frees the outputs of the last run.
  virtual void release_outputs() = 0;

  virtual std::int64_t launches() const = 0;              // kernels per run
  virtual std::int64_t predicted_peak_bytes() const = 0;  // requested bytes, leaves included
};

}  // namespace tracestep
