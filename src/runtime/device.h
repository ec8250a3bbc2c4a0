// Device: the interface of a back end, as executors, stores and measurements need it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/precision.h"
#include "ir/op_def.h"
#include "planning/device_traits.h"
#include "runtime/activity_tracer.h"
#include "runtime/allocator.h"
#include "runtime/ceilings.h"
#include "runtime/device_facts.h"
#include "runtime/prepared_kernel.h"
#include "runtime/range_sink.h"
#include "runtime/tensor_ref.h"

namespace tracestep {

// Points in the work of a device, and the times at which it reached them: host times on a
// synchronous device, events of its stream on an asynchronous one.
class Marks {
 public:
  virtual ~Marks() = default;
  // Sets mark i after everything issued up to now.
  virtual void set(std::size_t i) = 0;
  // Waits until the device has reached marks i and j, and returns the nanoseconds from i to j.
  virtual std::int64_t between_ns(std::size_t i, std::size_t j) = 0;
};

// Points in the work of one lane of a device, for which other lanes can wait.
class LaneEvents {
 public:
  virtual ~LaneEvents() = default;
  // Sets event i on `lane`: it is reached when everything that was issued there up to now is done.
  virtual void set(std::size_t i, int lane) = 0;
  // Makes work that is issued on `lane` from now on wait for event i as it was last set.
  virtual void wait(std::size_t i, int lane) = 0;
};

// Sends small results from the device to the host without waiting for work that was issued later.
class Outbox {
 public:
  static constexpr std::size_t kMostValues = 4, kMostBytes = 8;

  virtual ~Outbox() = default;
  // Sends the values at these addresses of device memory, after everything issued on lane 0 so far.
  // Where the send is captured, every replay sends them again.
  virtual void send(std::span<const void* const> values) = 0;
  // Counts a replay of captured work that sends. Must be called after each.
  virtual void count_replay() = 0;
  // Waits until the latest values have arrived, and returns the bytes of value i, which are valid
  // until the next send. All work that was issued before that send is done by then. Throws what
  // synchronize() throws.
  virtual std::span<const std::byte> read(std::size_t i) = 0;
};

// A recorded sequence of launches, operands included, that can be issued again as a whole.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Issues all captured launches. Throws DeviceError.
  virtual void launch() = 0;
  // Returns the number of kernels, copies and fills in one launch().
  virtual std::int64_t kernels() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;  // "cpu", "null", "reference", "cuda:0"
  virtual const DeviceTraits& traits() const = 0;
  virtual Allocator& allocator() = 0;
  // Returns the allocator of host memory that the device's kernels and copies can reach, for leaves
  // with Memory::kHost. Only the host's memory limits it. A device without its own memory
  // (DeviceTraits) has one allocator for both, and its programs place nothing in the host's.
  virtual Allocator& host_allocator() { return allocator(); }
  // Returns the requested bytes that are live in the host's memory; 0 on a device without memory of
  // its own.
  std::int64_t host_bytes() {
    return traits().has_own_memory() ? host_allocator().stats().requested_bytes : 0;
  }
  // True if the op has a kernel. If not, it must be decomposed or cannot run on this device.
  virtual bool has_kernel(const OpDef& op) const = 0;
  // Makes the call ready to launch: chooses, plans and compiles what it needs. The op must have a
  // kernel; the result must not outlive the device.
  virtual std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) = 0;
  // Compiles what the calls need, several kernels at a time, so that prepare() finds them. Errors
  // as those of prepare(). Does nothing on a device without a run-time compiler.
  virtual void compile(std::span<const KernelSpec> /*specs*/) {}
  // True if kernels exist for values of this dtype.
  virtual bool supports(DType dtype) const = 0;
  // True unless the device only plans and counts bytes (null device).
  virtual bool computes() const { return true; }

  // Copy between host and device memory, and return when that is done.
  virtual void copy_in(void* device, const void* host, std::int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::int64_t bytes) = 0;
  // Copies from the host to memory that no work in progress uses, so that the copy need not wait
  // for that work.
  virtual void copy_in_beside(void* device, const void* host, std::int64_t bytes) {
    copy_in(device, host, bytes);
  }
  // Returns an outbox for values of these sizes in bytes, within Outbox's limits. nullptr: there is
  // none, because results are on the host as soon as run() returns, or because the host has to wait
  // for all work.
  virtual std::unique_ptr<Outbox> make_outbox(std::span<const std::size_t> bytes);
  // Sets device memory to zero bits, before any work issued later.
  virtual void zero(void* device, std::int64_t bytes) = 0;
  // Waits until all issued work is done; throws the errors that occurred in it.
  virtual void synchronize() {}
  // True if kernels return before their work is done.
  virtual bool is_asynchronous() const { return false; }
  // Makes `count` marks.
  virtual std::unique_ptr<Marks> make_marks(std::size_t count);
  // Returns the nanoseconds that two marks around one kernel add to its time, to be subtracted from
  // the time between them. With several kernels in between, marks add less.
  virtual std::int64_t mark_overhead_ns() { return 0; }
  // Between hold() and release() an asynchronous device queues work without running it, so that
  // marks then measure the device and not how fast the host issues. Nothing that waits for the
  // device may be called in between, and at most a few hundred kernels may be issued.
  virtual void hold() {}
  virtual void release() {}
  // Returns the native stream for LaunchContext::stream, of lane 0. Work of other lanes may run at
  // the same time; the issuing thread orders them by lane events.
  virtual void* stream() { return nullptr; }
  virtual void* stream_beside(int /*lane*/) { return stream(); }
  // Makes `count` events; nullptr if the device has one lane.
  virtual std::unique_ptr<LaneEvents> make_lane_events(std::size_t count);
  // Returns the group in which the device is a rank; nullptr: it runs alone. The group must outlive
  // everything that is prepared while it is set.
  Communicator* group() const { return group_; }
  void join(Communicator* group) { group_ = group; }
  // Returns the context with which kernels are prepared and launched.
  LaunchContext context() { return context(0); }
  // Returns the context of a launch on `lane`; the group's next calls go to that lane too.
  LaunchContext context(int lane);
  // Calls `issue` and records its launches, without running them, as one piece of work that can be
  // issued many times. Returns nullptr without calling `issue` where the device cannot do that.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& /*issue*/) {
    return nullptr;
  }
  // Returns the bytes of physical memory that this process holds on the device, as the system
  // counts them; 0: not known. What exceeds resident_reserved_bytes() is untracked.
  virtual std::int64_t resident_bytes() const { return 0; }
  // Returns the allocator's reserved bytes that are backed by physical memory: all of them, unless
  // the system provides memory only when it is touched.
  virtual std::int64_t resident_reserved_bytes() { return allocator().stats().reserved_bytes; }

  // Returns the current clocks, power and temperature; empty for a device without such counters.
  // May take milliseconds.
  virtual DeviceFacts facts() const { return {}; }
  // Returns how kernels were chosen, for example "first heuristic"; empty: there was no choice.
  virtual std::string choices() const { return {}; }
  // ceilings() measures the highest speeds of steps in this precision, in about two seconds;
  // roof_tflops() only the TFLOP/s of matrix products or multiply-adds, as quickly as possible.
  // Empty and 0: the device is slow on purpose or computes nothing.
  virtual Ceilings ceilings(const Precision& /*precision*/) { return {}; }
  virtual double roof_tflops(const Precision& /*precision*/) { return 0.0; }
  // Returns where named ranges are reported; nullptr: no profiler is attached.
  virtual RangeSink* ranges() { return nullptr; }
  // Returns the device's own profiler; nullptr: it has none, or it cannot be used, which `problem`
  // then explains.
  virtual std::unique_ptr<ActivityTracer> make_activity_tracer(std::string& problem) {
    problem.clear();
    return nullptr;
  }
  // Tells an attached profiler to start (true) or stop recording.
  virtual void profile(bool on) { (void)on; }

 private:
  Communicator* group_ = nullptr;
};

// Prepares one call on operands with fixed addresses. The device must have a kernel for `op`.
PreparedLaunch prepare_at(Device& device, const OpDef& op, const Attrs& attrs,
                          std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                          std::span<std::byte> workspace);

}  // namespace tracestep
