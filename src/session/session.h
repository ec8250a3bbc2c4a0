// A run that is ready to execute: its program, a store with weights and states, and an executor,
// for each rank of this process if several share the batch.
#pragma once

#include <memory>
#include <vector>

#include "exec/executor.h"
#include "exec/rank_devices.h"
#include "spec/step_program.h"

namespace tracestep {

// A store for each rank of this process, on the rank's device. It also makes the executors that
// work on the stores; no other class makes stores or executors.
class RankStores {
 public:
  // Stores for one rank, or for all of `devices`. The devices must outlive this object.
  explicit RankStores(Device& device);
  explicit RankStores(const RankDevices& devices);

  int ranks() const { return static_cast<int>(stores_.size()); }
  Store& at(int rank) const { return *stores_[static_cast<std::size_t>(rank)]; }
  Store& first() const { return at(0); }

  // An executor over all ranks, with the executor and parallelism of `run`. Throws as
  // make_executor(), and DoesNotFit before anything is allocated if the machine lacks room
  // (session/room.h).
  std::unique_ptr<Executor> executor(const RunSpec& run, const Program& program) const;
  // An executor on the first rank of each process, while the other ranks stay idle; all processes
  // must call this.
  std::unique_ptr<Executor> executor_of_first(const RunSpec& run, const Program& program) const;

 private:
  std::vector<std::unique_ptr<Store>> stores_;
  Communicator* group_ = nullptr;
};

class Session {
 public:
  // Weights and states are zero at first, inputs unset. `device` must outlive the session. With
  // ranks (RunSpec::parallel) `device` is that of the first; the others have devices of their own,
  // made for the same specification, and their threads. Throws OutOfMemory, and Error{kUsage} when
  // the ranks cannot run on such a device.
  Session(Device& device, const RunSpec& spec);
  // Makes a session for the caller's program, whose weights and inputs must be those of `spec`.
  Session(Device& device, const RunSpec& spec, Program program);

  const RunSpec& spec() const { return spec_; }
  Device& device() { return devices_.first(); }
  Store& store() { return stores_.first(); }
  // The executor. Inputs are those of the whole batch; everything that is read comes from the first
  // rank.
  Executor& executor() { return *executor_; }
  const Program& program() const { return executor_->program(); }

  // The number of ranks in this process; 1 without ranks, and on a device that computes nothing.
  int ranks() const { return stores_.ranks(); }
  Device& device(int rank) { return *devices_.all()[static_cast<std::size_t>(rank)]; }
  Store& store(int rank) { return stores_.at(rank); }

 private:
  const RunSpec spec_;
  const RankDevices devices_;
  const RankStores stores_;
  const std::unique_ptr<Executor> executor_;
};

}  // namespace tracestep
