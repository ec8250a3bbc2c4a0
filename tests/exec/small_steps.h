// Steps of a small model, as the tests of the executors run them.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/executor.h"
#include "spec/step_program.h"

namespace tracestep::testing {

RunSpec small_step(Mode mode, Granularity ops, AttentionForm attention = AttentionForm::kNaive);

// Random token ids, others for another round; a learning rate of 0.01 for the rank-0 inputs.
void set_inputs(Executor& executor, int round = 0);

// Every output of three runs on three batches, and the parameters after them.
std::vector<std::vector<std::byte>> results_of(ExecutorKind kind, const Program& program,
                                               Device& device);
std::vector<std::vector<std::byte>> results_of(ExecutorKind kind, const RunSpec& spec,
                                               Device& device);

}  // namespace tracestep::testing
