// A run that is ready to execute: the program of its specification, a store with its weights and
// states, and an executor; of each rank, where several share the batch.
#pragma once

#include <memory>
#include <vector>

#include "exec/executor.h"
#include "exec/rank_devices.h"
#include "spec/step_program.h"

namespace tracestep {

class Session {
 public:
  // Weights and states are zero, inputs unset. `device` must outlive the session. With ranks
  // (RunSpec::parallel) it is that of the first; the others have devices of their own, made for the
  // same specification, and their threads. Throws OutOfMemory, and Error{kUsage} when the ranks
  // cannot run on such a device.
  Session(Device& device, const RunSpec& spec);
  // The same with the caller's program; weights and inputs are those of `spec`.
  Session(Device& device, const RunSpec& spec, Program program);

  // Fills weights and inputs quickly, for steps whose results are not read.
  void fill_for_timing();

  const RunSpec& spec() const { return spec_; }
  Device& device() { return devices_.first(); }
  Store& store() { return *stores_.front(); }
  // Inputs are those of the whole batch; everything that is read is the first rank's.
  Executor& executor() { return *executor_; }
  const Program& program() const { return executor_->program(); }

  // Ranks that run in this process; 1 without them, and on a device that computes nothing.
  int ranks() const { return static_cast<int>(stores_.size()); }
  Device& device(int rank) { return *devices_.all()[static_cast<std::size_t>(rank)]; }
  Store& store(int rank) { return *stores_[static_cast<std::size_t>(rank)]; }

 private:
  const RunSpec spec_;
  const RankDevices devices_;
  std::vector<std::unique_ptr<Store>> stores_;  // by rank
  std::unique_ptr<Executor> executor_;
};

}  // namespace tracestep
