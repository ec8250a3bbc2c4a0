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

// Host times of one run; on a device that computes asynchronously they are those of the calls.
struct RunClocks {
  std::int64_t issue_start_ns = 0;  // entering run()
  std::int64_t first_start_ns = 0;  // first kernel starts
  std::int64_t last_end_ns = 0;     // last kernel ends (host device) or is issued
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const Program& program() const = 0;

  // Copies a host tensor into the input leaf; it stays until it is set again.
  // Throws Error{kUsage}: no such input, another type.
  virtual void set_input(std::string_view name, const TensorView& value) = 0;
  // One step. Updates are visible in the store afterwards. Throws OutOfMemory, DeviceError; all
  // temporaries are freed then. With a recorder, spans (and the allocator's events) go to it.
  virtual RunClocks run(Recorder* recorder = nullptr) = 0;
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
