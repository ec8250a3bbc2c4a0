// The base of the executors: leaves, prepared launches, and the order in which a run issues them,
// with marks, ranges and an observer. Derived classes decide when buffers exist.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/early_results.h"
#include "exec/executor.h"
#include "exec/lane_order.h"
#include "exec/launches.h"
#include "exec/step_ranges.h"

namespace tracestep {

class StepExecutor : public Executor {
 public:
  ~StepExecutor() override;
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  const Program& program() const override { return program_; }
  const BufferPlan& buffer_plan() const override { return buffer_plan_; }
  void observe(RunObserver observer) override;
  const RunObserver& observer() const override { return observer_; }
  void set_input(std::string_view name, const TensorView& value) override;
  std::int64_t device_span_ns() override { return marks_->between_ns(kFirst, kLast); }
  HostTensor output(std::string_view name) const override;
  std::optional<HostTensor> value(ValueId id) const override;
  std::int64_t launches() const override { return static_cast<std::int64_t>(launches_.size()); }

 protected:
  // Binds the leaves in `store` and allocates the inputs. `program` must be materialized.
  // Throws OutOfMemory, and Error{kUsage} when an op or a dtype has no kernel on the device.
  StepExecutor(Store& store, Program program, BufferPlan buffer_plan);

  // Called before a launch is issued: provides its buffers and its workspace, which stay valid
  // until the end() of this launch.
  virtual void begin(Launch& launch) = 0;
  virtual void end(Launch& launch) = 0;
  // True while the buffer holds a value.
  virtual bool is_alive(int buffer) const = 0;

  // Issues all launches; if one throws, the device stays usable. If spans are recorded, each launch
  // runs alone between two marks. In guarded memory of a device with one lane, work of other lanes
  // is issued as late as the plan allows, so that a plan that frees something too early shows.
  void issue();
  // Issues all launches, without marks and pauses, when no buffers need to be provided.
  void launch_all();
  // Issues launches that were captured from launch_all().
  void replay(CapturedWork& work);
  // True if the run must stop at single launches, for spans or pauses.
  bool is_observed() const { return records_spans() || !observer_.pauses.empty(); }

  Device& device() const { return device_; }
  std::vector<Launch>& launch_list() { return launches_; }
  const std::vector<Launch>& launch_list() const { return launches_; }
  const Buffer& buffer(std::size_t index) const { return buffer_plan_.buffers[index]; }

  std::vector<void*> addresses_;  // Addresses by buffer; those of leaves never change.
  static constexpr std::size_t kFirst = 0, kLast = 1;  // Indices in marks_.
  std::unique_ptr<Marks> marks_;

 private:
  void allocate_leaves();
  void free_inputs();
  bool records_spans() const {
    return observer_.recorder != nullptr && observer_.recorder->records_spans();
  }
  void issue_with_spans();
  void issue_with_pauses();
  // Issues a launch; with marks, sets marks[mark] before and marks[mark + 1] after its kernel.
  void issue_one(Launch& launch, Marks* marks, std::size_t mark);
  void launch_one(const Launch& launch, bool alone);
  // Issues the postponed launches up to this node.
  void issue_postponed(NodeId last);
  bool is_postponed(const Launch& launch) const;
  bool is_only_in_between(const Value& v, int buffer) const;
  // Sends early results if this launch completed them.
  void send_behind(const Launch& launch);

  Store& store_;
  Device& device_;
  const Program program_;
  const BufferPlan buffer_plan_;
  std::vector<Launch> launches_;
  LaneOrder lanes_;
  std::deque<Launch*> postponed_;
  RunObserver observer_;
  // Set if results are asked for early and the device can send them.
  std::unique_ptr<EarlyResults> early_;
  std::unique_ptr<Marks> span_marks_;   // The start and end of each launch; made when first needed.
  std::unique_ptr<StepRanges> ranges_;  // Set only while a profiler is attached.
};

}  // namespace tracestep
