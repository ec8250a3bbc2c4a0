#include "lab/measure/measurement.h"

#include "runtime/wishes.h"

namespace tracestep {
namespace {

struct Interrupted {};

}  // namespace

Outcome attempt(const std::function<void()>& work,
                const std::function<void(const OutOfMemory& error)>& failed) {
  try {
    work();
  } catch (const Interrupted&) {
    return {Status::kInterrupted};
  } catch (const OutOfMemory& error) {
    if (failed) failed(error);
    return {Status::kOutOfMemory, error.what(), error.lack()};
  }
  return {};
}

StepTimes Measurement::step(Recorder* recorder) {
  if (wishes_of(device_.group(), stop_).stop) throw Interrupted();
  std::optional<Observation> spans;
  if (recorder != nullptr) {
    spans.emplace(executor_, [&](RunObserver& observer) { observer.recorder = recorder; });
  }
  const ScopedRange range(device_.ranges(), "step");
  StepTimes out;
  out.start_ns = now_ns();
  executor_.run();
  out.issued_ns = now_ns();
  device_.synchronize();
  out.end_ns = now_ns();
  return out;
}

void Measurement::warm_up(int steps, const std::function<void(const StepTimes& times)>& observe) {
  for (int i = 0; i < steps; ++i) {
    const ScopedRange range(device_.ranges(), "warm-up");
    const StepTimes times = step();
    if (observe) observe(times);
  }
}

void Measurement::record(
    int steps,
    const std::function<void(const StepTimes& times, const Recorder& recorder)>& observe) {
  const auto launches = static_cast<std::size_t>(executor_.launches());
  Recorder recorder({.spans = true, .memory = true});
  recorder.reserve(launches * 2, launches * 12);
  for (int i = 0; i < steps; ++i) {
    executor_.release_outputs();
    recorder.clear();
    StepTimes times;
    {
      const Recording recording(device_.allocator(), recorder);
      times = step(&recorder);
    }
    observe(times, recorder);
  }
}

double busy_ms_of(const std::vector<Span>& spans) {
  std::int64_t total_ns = 0;
  for (const Span& s : spans) total_ns += s.end_ns - s.start_ns;
  return static_cast<double>(total_ns) * 1e-6;
}

}  // namespace tracestep
