// The eager executor: ops in program order, each its own kernel launch, buffers from the device's
// allocator, freed after their last reader.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/storage.h"
#include "exec/executor.h"
#include "exec/step_ranges.h"

namespace tracestep {

class EagerExecutor : public Executor {
 public:
  // Binds the leaves in `store` and allocates the inputs. `program` has been materialized.
  // Throws Error{kUsage} when an op or a dtype has no kernel on the device.
  EagerExecutor(Store& store, Program program);
  ~EagerExecutor() override;
  EagerExecutor(const EagerExecutor&) = delete;
  EagerExecutor& operator=(const EagerExecutor&) = delete;

  const Program& program() const override { return program_; }
  const Storage& storage() const { return storage_; }

  // Called in the middle of a run, before the first kernel of `node` or a later one; it may wait
  // for the device and read the allocator. How a measurement times a part of a step by itself.
  struct Pause {
    NodeId node = kNoNode;
    std::function<void()> act;
  };
  // In order of nodes. Runs that record spans do not pause: they hold the device.
  void set_pauses(std::vector<Pause> pauses) { pauses_ = std::move(pauses); }

  void set_input(std::string_view name, const TensorView& value) override;
  void run(Recorder* recorder = nullptr) override;
  void set_tracer(ActivityTracer* tracer) override { tracer_ = tracer; }
  std::int64_t device_span_ns() override { return marks_->between_ns(kFirst, kLast); }
  HostTensor output(std::string_view name) const override;
  // A value, copied to the host; nullopt when it has no buffer. In a pause, what was computed right
  // before: nobody has had the chance to write over it.
  std::optional<HostTensor> value(ValueId id) const;
  void release_outputs() override;
  std::int64_t launches() const override { return static_cast<std::int64_t>(launches_.size()); }
  std::int64_t predicted_peak_bytes() const override { return predicted_peak_bytes_; }

 private:
  // One operand or result: which buffer, and what it looks like there.
  struct Slot {
    int buffer = -1;
    std::int64_t offset_bytes = 0;
    TensorRef ref;
  };
  struct Launch {
    NodeId node = kNoNode;
    Kernel kernel = nullptr;
    std::vector<Slot> inputs, outputs;
    std::int64_t workspace_bytes = 0;
  };

  Launch make_launch(NodeId id) const;
  Slot slot(ValueId id) const;
  void allocate_leaves();
  void issue(Recorder* recorder);
  void issue_with_pauses();
  // Sets marks[mark] before and marks[mark + 1] after the kernel, when there are marks.
  void run_one(Launch& launch, Marks* marks, std::size_t mark);
  void free_temporaries();
  std::byte* address(const Slot& slot) const {
    return static_cast<std::byte*>(buffers_[static_cast<std::size_t>(slot.buffer)]) +
           slot.offset_bytes;
  }

  Store& store_;
  Device& device_;
  Program program_;
  Storage storage_;
  std::vector<Launch> launches_;
  std::vector<Pause> pauses_;
  std::vector<void*> buffers_;                         // by buffer index; nullptr: not alive
  std::vector<TensorRef> inputs_, outputs_;            // scratch of run_one
  static constexpr std::size_t kFirst = 0, kLast = 1;  // of marks_
  std::unique_ptr<Marks> marks_;
  std::unique_ptr<Marks> span_marks_;  // start and end of each launch; made when first needed
  std::int64_t predicted_peak_bytes_ = 0;
  std::unique_ptr<StepRanges> ranges_;  // only while a profiler listens
  ActivityTracer* tracer_ = nullptr;    // while the device's own profiler records
};

}  // namespace tracestep
