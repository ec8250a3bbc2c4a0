// The protocol that every measurement follows: steps one by one, each from the call until the
// device is done; warm-up before them, recorded steps apart from them; a signal to stop is looked
// at between steps, and running out of memory is an outcome. What is observed is the experiment's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/signals.h"
#include "exec/executor.h"
#include "runtime/device.h"

namespace tracestep {

// How a measurement ended; there are no numbers but with kOk.
enum class Status : std::uint8_t { kOk, kOutOfMemory, kInterrupted };
std::string_view name_of(Status status);  // "ok", "oom", "interrupted"

struct Outcome {
  Status status = Status::kOk;
  std::string detail = {};  // why it is out of memory
};
// Runs `work`. `failed` is told what was there when memory ran out.
Outcome attempt(const std::function<void()>& work,
                const std::function<void(const OutOfMemory& error)>& failed = {});

// The host's clock around a step.
struct StepTimes {
  std::int64_t start_ns = 0;   // the call
  std::int64_t issued_ns = 0;  // it returns
  std::int64_t end_ns = 0;     // the device is done

  double wall_ms() const { return static_cast<double>(end_ns - start_ns) * 1e-6; }
  double issue_ms() const { return static_cast<double>(issued_ns - start_ns) * 1e-6; }
};

// Takes down the events of an allocator while it lives, in a recorder that lives longer.
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

// Steps of an executor on its device. Each call may end the attempt() around it, by a signal to
// stop or for want of memory.
class Measurement {
 public:
  Measurement(Executor& executor, Device& device, const StopSignal* stop = nullptr)
      : executor_(executor), device_(device), stop_(stop) {}

  StepTimes step(Recorder* recorder = nullptr);
  void warm_up(int steps, const std::function<void(const StepTimes& times)>& observe = {});
  // Steps with every kernel and every allocation recorded. Recording costs a little, so these are
  // never the timed ones.
  void record(int steps,
              const std::function<void(const StepTimes& times, const Recorder& recorder)>& observe);

  // Of the last step: from the first kernel's start to the last one's end.
  std::int64_t span_ns() { return executor_.device_span_ns(); }
  double span_ms() { return static_cast<double>(span_ns()) * 1e-6; }

 private:
  Executor& executor_;
  Device& device_;
  const StopSignal* stop_;
};

// Kernel times added up.
double busy_ms_of(const std::vector<Span>& spans);

}  // namespace tracestep
