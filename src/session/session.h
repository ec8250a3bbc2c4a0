// A run that is ready to execute: the program of its specification, a store with its weights and
// states, and an executor.
#pragma once

#include "exec/executor.h"
#include "spec/step_program.h"

namespace tracestep {

class Session {
 public:
  // Weights and states are zero, inputs unset. `device` must outlive the session. Throws
  // OutOfMemory.
  Session(Device& device, const RunSpec& spec);
  // The same with the caller's program; weights and inputs are those of `spec`.
  Session(Device& device, const RunSpec& spec, Program program);

  // Fills weights and inputs quickly, for steps whose results are not read.
  void fill_for_timing();

  const RunSpec& spec() const { return spec_; }
  Device& device() { return device_; }
  Store& store() { return store_; }
  Executor& executor() { return *executor_; }
  const Program& program() const { return executor_->program(); }

 private:
  Device& device_;
  RunSpec spec_;
  Store store_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace tracestep
