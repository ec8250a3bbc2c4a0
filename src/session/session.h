// A run that is ready: the program that its specification means, a store for weights and states,
// and an executor. What one needs between a RunSpec and numbers.
#pragma once

#include "exec/executor.h"
#include "spec/step_program.h"

namespace tracestep {

class Session {
 public:
  // Weights and states are zero, inputs unset. `device` must live longer. Throws OutOfMemory.
  Session(Device& device, const RunSpec& spec);
  // The same with a program of one's own; weights and inputs are those of `spec`.
  Session(Device& device, const RunSpec& spec, Program program);

  // Weights and inputs that are made quickly, for steps whose results nobody reads.
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
