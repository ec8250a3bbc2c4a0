// Device: what executors, stores and measurements need of a back end.
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
  // Places mark i after everything issued so far.
  virtual void set(std::size_t i) = 0;
  // Waits until the device reached marks i and j; nanoseconds from i to j.
  virtual std::int64_t between_ns(std::size_t i, std::size_t j) = 0;
};

// Points in the work of a device's lanes, for other lanes to wait for.
class LaneEvents {
 public:
  virtual ~LaneEvents() = default;
  // Event i is reached when all is done that was issued on `lane` so far.
  virtual void set(std::size_t i, int lane) = 0;
  // Work issued later on `lane` runs after event i as it was last set.
  virtual void wait(std::size_t i, int lane) = 0;
};

// Small results that a device sends to the host, which need not wait for the work behind them.
class Outbox {
 public:
  static constexpr std::size_t kMostValues = 4, kMostBytes = 8;

  virtual ~Outbox() = default;
  // Sends the values at these addresses of device memory, behind everything issued on lane 0 so
  // far. Where that is captured, every replay sends them again.
  virtual void send(std::span<const void* const> values) = 0;
  // To be called after each replay.
  virtual void count_replay() = 0;
  // Waits until what was sent last is there; the bytes of value i, until the next send. All work
  // issued before it is done then. Throws what synchronize() throws.
  virtual std::span<const std::byte> read(std::size_t i) = 0;
};

// A recorded sequence of launches, operands included, that can be issued again as a whole.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  // Issues all captured launches. Throws DeviceError.
  virtual void launch() = 0;
  // The kernels, copies and fills that one launch() runs.
  virtual std::int64_t kernels() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;  // "cpu", "null", "reference", "cuda:0"
  virtual const DeviceTraits& traits() const = 0;
  virtual Allocator& allocator() = 0;
  // Allocates memory of the host that the device's kernels and copies reach. Leaves with
  // Memory::kHost lie there. It has no limit but what the host can give. A device without memory of
  // its own (DeviceTraits) has one allocator for both; its programs place nothing in the host's.
  virtual Allocator& host_allocator() { return allocator(); }
  // Live bytes there, as asked for; 0 on a device without memory of its own.
  std::int64_t host_bytes() {
    return traits().has_own_memory() ? host_allocator().stats().requested_bytes : 0;
  }
  // False: the op must be decomposed, or cannot run here.
  virtual bool has_kernel(const OpDef& op) const = 0;
  // Makes the call ready to launch: chooses, plans and compiles what it needs. The op must have a
  // kernel; the result must not outlive the device.
  virtual std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) = 0;
  // Compiles what the calls need, several kernels at a time, so that prepare() finds them. Errors
  // as those of prepare(). Does nothing on a device without a run-time compiler.
  virtual void compile(std::span<const KernelSpec> /*specs*/) {}
  // True if kernels exist for values of this dtype.
  virtual bool supports(DType dtype) const = 0;
  // False for a device that only plans and counts bytes (null device).
  virtual bool computes() const { return true; }

  // Blocking copies between host and device memory.
  virtual void copy_in(void* device, const void* host, std::int64_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, std::int64_t bytes) = 0;
  // As copy_in(), to memory that no work under way uses: the copy need not wait for that work.
  virtual void copy_in_beside(void* device, const void* host, std::int64_t bytes) {
    copy_in(device, host, bytes);
  }
  // An outbox for so many values of so many bytes (Outbox's limits); nullptr: results are on the
  // host as soon as run() returns, or it has to wait for all work.
  virtual std::unique_ptr<Outbox> make_outbox(std::span<const std::size_t> bytes);
  // Sets device memory to zero bits, before any work issued later.
  virtual void zero(void* device, std::int64_t bytes) = 0;
  // Waits until all issued work is done; throws the errors that occurred in it.
  virtual void synchronize() {}
  // True if kernels return before their work is done.
  virtual bool is_asynchronous() const { return false; }
  // Room for `count` marks.
  virtual std::unique_ptr<Marks> make_marks(std::size_t count);
  // Time that two marks around one kernel add to it: to be taken off the time between them. It is
  // less for marks with several kernels in between.
  virtual std::int64_t mark_overhead_ns() { return 0; }
  // Between hold() and release() an asynchronous device only queues what it is given, so that marks
  // measure its work and not the host's pace. Nothing that waits for the device may be called in
  // between, and at most a few hundred kernels may be issued.
  virtual void hold() {}
  virtual void release() {}
  // Native stream for LaunchContext::stream, of lane 0. Work of other lanes may run at the same
  // time; the issuing thread orders them by lane events.
  virtual void* stream() { return nullptr; }
  virtual void* stream_beside(int /*lane*/) { return stream(); }
  // Room for `count` events; nullptr: the device has one lane.
  virtual std::unique_ptr<LaneEvents> make_lane_events(std::size_t count);
  // The group that the device is a rank of; nullptr: it runs alone. The group must outlive what is
  // prepared meanwhile.
  Communicator* group() const { return group_; }
  void join(Communicator* group) { group_ = group; }
  // Kernels are prepared for and launched with this context.
  LaunchContext context() { return context(0); }
  // The context of a launch on `lane`, to which the group's next calls are moved as well.
  LaunchContext context(int lane);
  // Calls `issue` and records its launches, without running them, as one piece of work that can be
  // issued many times. Returns nullptr without calling `issue` where the device cannot do that.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& /*issue*/) {
    return nullptr;
  }
  // Bytes of physical memory this process holds on the device, as the system counts; 0: not known.
  // Bytes beyond resident_reserved_bytes() are untracked.
  virtual std::int64_t resident_bytes() const { return 0; }
  // The allocator's reserved bytes that are backed by physical memory: all of them, unless the
  // system provides memory only when it is touched.
  virtual std::int64_t resident_reserved_bytes() { return allocator().stats().reserved_bytes; }

  // The current clocks, power and temperature; empty for a device without such counters. May take
  // milliseconds.
  virtual DeviceFacts facts() const { return {}; }
  // How kernels were chosen, for example "first heuristic"; empty: there was nothing to choose.
  virtual std::string choices() const { return {}; }
  // The highest speeds of steps in this precision, measured in about two seconds, and of matrix
  // products or multiply-adds alone (TFLOP/s), as quickly as possible. Empty and 0: the device is
  // slow on purpose, or computes nothing.
  virtual Ceilings ceilings(const Precision& /*precision*/) { return {}; }
  virtual double roof_tflops(const Precision& /*precision*/) { return 0.0; }
  // Where to report named ranges; nullptr: no profiler is attached.
  virtual RangeSink* ranges() { return nullptr; }
  // The device's own profiler; nullptr: it has none, or `problem` says why it cannot be used.
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
