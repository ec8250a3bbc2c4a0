// The compiled executor: everything of a step lies in one arena at planned offsets, so that all
// addresses are known when the program is bound. A run is a loop over launches that are ready, or,
// on a device that can capture them, one launch of them all.
#pragma once

#include "analysis/plan.h"
#include "exec/step_executor.h"

namespace tracestep {

class CompiledExecutor final : public StepExecutor {
 public:
  // Allocates the arena. Errors as StepExecutor's; out of memory is noticed here and not in a run.
  CompiledExecutor(Store& store, const Program& program);
  ~CompiledExecutor() override;

  // Somebody who listens to single launches (spans, pauses, a tracer, recorded memory) gets the
  // loop. The first run is one as well: it loads what the device loads at first use, and is then
  // captured.
  void run(Recorder* recorder = nullptr) override;
  // The bytes stay until the next run writes over them, but nobody may read them any more.
  void release_outputs() override;
  std::int64_t predicted_peak_bytes() const override { return plan_.peak_bytes(); }
  const Plan& plan() const { return plan_; }

 private:
  CompiledExecutor(Store& store, const Program& program, Plan plan);

  void begin(Launch& launch) override;
  void end(Launch& launch) override;
  bool is_alive(int buffer) const override { return plan_.is_alive_after(buffer, done_); }
  void allocate_arena();
  void launch_all() const;
  bool records_memory() const;
  // An event of the arena's inside, for the allocator's recorder: planned, and not asked for.
  void record(MemoryAction action, const Plan::Place& place);

  const Plan plan_;
  std::byte* arena_ = nullptr;
  NodeId done_ = kNoNode;  // the last node that ran
  std::unique_ptr<CapturedWork> captured_;
  bool may_capture_ = true;
  std::int64_t live_bytes_ = 0;  // of recorded events
};

}  // namespace tracestep
