// The compiled executor: all buffers of a step lie in one arena at planned offsets, so that all
// addresses are known when the program is bound. A run is a loop over prepared launches or, on a
// device that can capture them, one launch of all of them (a CUDA graph).
#pragma once

#include "analysis/plan.h"
#include "exec/plan_guard.h"
#include "exec/step_executor.h"

namespace tracestep {

class CompiledExecutor final : public StepExecutor {
 public:
  // Allocates the arena. `may_capture`: false for a run that is always a loop over launches. Errors
  // as StepExecutor's; OutOfMemory is thrown here, never by a run.
  CompiledExecutor(Store& store, const Program& program, bool may_capture = true);
  // Runs by a plan that the caller made of `program`.
  CompiledExecutor(Store& store, const Program& program, Plan plan, bool may_capture = true);
  ~CompiledExecutor() override;

  // Uses the loop when single launches are observed (spans, pauses, recorded memory, a guarded
  // allocator, a tracer that does not follow captures), and for the first run, which lets the
  // device load its code; the launches are captured after it. With a guarded allocator every launch
  // is checked against the plan.
  void run() override;
  void observe(RunObserver observer) override;
  // The bytes stay in the arena until the next run, but outputs can no longer be read.
  void release_outputs() override;
  bool is_captured() const override { return captured_ != nullptr; }
  std::optional<std::int64_t> kernels() const override;
  std::int64_t predicted_peak_bytes() const override { return plan_.peak_bytes(); }
  const Plan& plan() const { return plan_; }

 private:
  void begin(Launch& launch) override;
  void end(Launch& launch) override;
  bool is_alive(int buffer) const override { return plan_.is_alive_after(buffer, done_); }
  void allocate_arena();
  // Tries it once: leaves captured_ empty where the device cannot, or fails to.
  void capture();
  bool records_memory() const;
  // Records a planned event inside the arena in the allocator's recorder.
  void record(MemoryAction action, const Plan::Place& place);

  const Plan plan_;
  std::byte* arena_ = nullptr;
  std::unique_ptr<PlanGuard> guard_;  // only with a guarded allocator
  NodeId done_ = kNoNode;             // the last node that ran
  std::unique_ptr<CapturedWork> captured_;
  const bool is_to_capture_;
  bool may_capture_ = is_to_capture_;  // and has not tried
  std::int64_t live_bytes_ = 0;        // of recorded events
};

}  // namespace tracestep
