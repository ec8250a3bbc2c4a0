// The protocol of every measurement: steps are timed one by one, each from the call until the
// device is done; warm-up steps come first, and recorded steps are separate from timed ones.
// Signals to stop are checked between steps, and running out of memory is an outcome, not an error.
// Each experiment decides what it observes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "base/signals.h"
#include "exec/executor.h"
#include "runtime/device.h"

namespace tracestep {

// How a measurement ended; only kOk comes with numbers.
enum class Status : std::uint8_t { kOk, kOutOfMemory, kInterrupted };
TRACESTEP_WORDS(Status, "ok", "oom", "interrupted");

struct Outcome {
  Status status = Status::kOk;
  std::string detail = {};  // why it is out of memory
  Lack lack = {};           // The memory that was lacking.
};
// Runs `work` and returns how it ended. When it runs out of memory, `failed` is called with the
// error, which has the state at that moment.
Outcome attempt(const std::function<void()>& work,
                const std::function<void(const OutOfMemory& error)>& failed = {});

// The host's clock around a step: at the call, at its return, and when the device is done.
struct StepTimes {
  std::int64_t start_ns = 0;   // the call
  std::int64_t issued_ns = 0;  // The time when the call returns.
  std::int64_t end_ns = 0;     // The time when the device has finished.

  double wall_ms() const { return static_cast<double>(end_ns - start_ns) * 1e-6; }
  double issue_ms() const { return static_cast<double>(issued_ns - start_ns) * 1e-6; }
};

// Records an allocator's events for the lifetime of this object; the recorder must outlive it.
class Recording {
 public:
  Recording(Allocator& allocator, Recorder& recorder) : allocator_(allocator) {
    allocator_.set_recorder(&recorder);
  }
  ~Recording() { allocator_.set_recorder(nullptr); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Allocator& allocator_;
};

// Runs steps of an executor on its device. Each call may end the surrounding attempt(): by a signal
// to stop or by running out of memory.
class Measurement {
 public:
  Measurement(Executor& executor, Device& device, const StopSignal* stop = nullptr)
      : executor_(executor), device_(device), stop_(stop) {}

  StepTimes step(Recorder* recorder = nullptr);
  void warm_up(int steps, const std::function<void(const StepTimes& times)>& observe = {});
  // Runs steps with every kernel and every allocation recorded. Recording costs a little, so these
  // are never the timed ones.
  void record(int steps,
              const std::function<void(const StepTimes& times, const Recorder& recorder)>& observe);

  // Returns the span of the last step: from the first kernel's start to the last one's end.
  std::int64_t span_ns() { return executor_.device_span_ns(); }
  double span_ms() { return static_cast<double>(span_ns()) * 1e-6; }

 private:
  Executor& executor_;
  Device& device_;
  const StopSignal* stop_;
};

// Returns the sum of the kernels' times in milliseconds.
double busy_ms_of(const std::vector<Span>& spans);

}  // namespace tracestep
