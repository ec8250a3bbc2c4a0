// Steps of a small model, as the tests of the executors run them.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/executor.h"
#include "spec/step_program.h"

namespace tracestep::testing {

RunSpec small_step(Mode mode, Granularity ops, AttentionForm attention = AttentionForm::kNaive);

// Sets random token ids, others for another round, and 0.01 for all rank-0 inputs, such as rates.
void set_inputs(Executor& executor, int round = 0);

// Runs on three batches; returns every output of each, and the parameters after them.
std::vector<std::vector<std::byte>> results_of(ExecutorKind kind, const Program& program,
                                               Device& device);
std::vector<std::vector<std::byte>> results_of(ExecutorKind kind, const RunSpec& spec,
                                               Device& device);

}  // namespace tracestep::testing
