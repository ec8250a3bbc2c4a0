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
  // Allocates the arena. `may_capture`: false: every run is a loop over launches. Throws as
  // StepExecutor; OutOfMemory is only thrown here and never by a run.
  CompiledExecutor(Store& store, const Program& program, bool may_capture = true);
  // Allocates the arena, too, by a plan that the caller made for `program`.
  CompiledExecutor(Store& store, const Program& program, Plan plan, bool may_capture = true);
  ~CompiledExecutor() override;

  // Uses the loop when single launches are observed (spans, pauses, recorded memory, a guarded
  // allocator, a tracer that does not follow captures), and for the first run, which lets the
  // device load its code; the launches are captured after it. With a guarded allocator every launch
  // is checked against the plan.
  void run() override;
  void observe(RunObserver observer) override;
  // Ends access to outputs, whose bytes stay in the arena until the next run.
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
  // Tries to capture the launches, once; captured_ stays empty if the device cannot or fails to.
  void capture();
  bool records_memory() const;
  // Records `action` for a planned place in the arena, as if the allocator had done it.
  void record(MemoryAction action, const Plan::Place& place);

  const Plan plan_;
  std::byte* arena_ = nullptr;
  std::unique_ptr<PlanGuard> guard_;  // Only set with a guarded allocator.
  NodeId done_ = kNoNode;             // The last node that has run.
  std::unique_ptr<CapturedWork> captured_;
  const bool is_to_capture_;
  bool may_capture_ = is_to_capture_;  // True if it may still try to capture.
  std::int64_t live_bytes_ = 0;        // The live bytes of recorded events.
};

}  // namespace tracestep
