// Device: what executors, stores and measurements need of a back end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ir/op_def.h"
#include "planning/device_traits.h"
#include "runtime/activity_tracer.h"
#include "runtime/allocator.h"
#include "runtime/device_facts.h"
#include "runtime/prepared_kernel.h"
#include "runtime/range_sink.h"
#include "runtime/tensor_ref.h"

namespace tracestep {

// Points in the work of a device, and when it reached them. On a device that computes as it is
// asked these are host times; otherwise events of its stream.
class Marks {
 public:
  virtual ~Marks() = default;
  // Sets mark i behind everything issued so far.
  virtual void set(std::size_t i) = 0;
  // Waits until the device reached marks i and j; nanoseconds from i to j.
  virtual std::int64_t between_ns(std::size_t i, std::size_t j) = 0;
};

// Launches that were recorded once, with their operands.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Issues all of them. Throws DeviceError.
  virtual void launch() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;  // "cpu", "null", "reference", "cuda:0"
  virtual const DeviceTraits& traits() const = 0;
  virtual Allocator& allocator() = 0;
  // False: the op must be decomposed, or cannot run here.
  virtual bool has_kernel(const OpDef& op) const = 0;
  // Chooses and plans all that launches of this call need; the op has a kernel. What is prepared
  // must not outlive the device.
  virtual std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) = 0;
  // Whether kernels exist for values of this dtype.
  virtual bool supports(DType dtype) const = 0;
  // False for a device that plans and counts but has no numbers.
  virtual bool computes() const { return true; }

  // Blocking copies between host and device memory.
  virtual void copy_in(void* device, const void* host, std::int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::int64_t bytes) = 0;
  // Sets device memory to zero bits, before whatever is issued next.
  virtual void zero(void* device, std::int64_t bytes) = 0;
  // Waits until all issued work is done; throws what went wrong in it.
  virtual void synchronize() {}
  // Whether kernels return before their work is done.
  virtual bool is_asynchronous() const { return false; }
  // Room for `count` marks.
  virtual std::unique_ptr<Marks> make_marks(std::size_t count);
  // What lies between two marks with nothing in between; what is measured between marks is that
  // much too long.
  virtual std::int64_t mark_overhead_ns() { return 0; }
  // Between hold() and release() an asynchronous device only queues what it is given, so that marks
  // measure its work and not the host's pace. Nothing that waits for the device may be called in
  // between, and at most a few hundred kernels may be issued.
  virtual void hold() {}
  virtual void release() {}
  // Native stream for LaunchContext::stream.
  virtual void* stream() { return nullptr; }
  // Records what `issue` launches, without running it, as one piece of work that can be issued
  // again and again. nullptr, and `issue` is not called: the device cannot.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& /*issue*/) {
    return nullptr;
  }
  // Bytes of physical memory this process holds on the device, by the system's own count; 0: not
  // known. What of it is not in resident_reserved_bytes() is untracked.
  virtual std::int64_t resident_bytes() const { return 0; }
  // Of the allocator's reserved bytes those with physical memory behind them: all, unless the
  // system gives memory only when it is touched.
  virtual std::int64_t resident_reserved_bytes() { return allocator().stats().reserved_bytes; }

  // Its clocks, power and heat now; empty for a device that has no such counters. May take
  // milliseconds.
  virtual DeviceFacts facts() const { return {}; }
  // How kernels were chosen where there is a choice, as "first heuristic"; empty: there is none.
  virtual std::string choices() const { return {}; }
  // Where to name ranges; nullptr: no profiler listens.
  virtual RangeSink* ranges() { return nullptr; }
  // The device's own profiler; nullptr: it has none, or `problem` says why it cannot be used.
  virtual std::unique_ptr<ActivityTracer> make_activity_tracer(std::string& problem) {
    problem.clear();
    return nullptr;
  }
  // Tells a profiler that waits for it to start or to stop recording.
  virtual void profile(bool on) { (void)on; }
};

// One call on operands that stay where they are. The device has a kernel for `op`.
PreparedLaunch prepare_at(Device& device, const OpDef& op, const Attrs& attrs,
                          std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                          std::span<std::byte> workspace);

}  // namespace tracestep
