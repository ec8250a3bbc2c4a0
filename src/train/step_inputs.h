// Fills the inputs of a measured step: random tokens, small learning rates, quick weights.
#pragma once

#include "exec/executor.h"
#include "session/session.h"
#include "spec/step_program.h"
#include "tokens/batches.h"

namespace tracestep {

// Sets every input that the program has: tokens and targets drawn from the run's seed, the learning
// rate and the step size of an optimizer's first step.
void set_step_inputs(Executor& executor, const RunSpec& spec);
// Sets the inputs of a text's batch, with checked tokens: a captured module has its own names.
void set_batch(Executor& executor, const RunSpec& spec, const Batch& batch);
// Tells a captured module with dropout which batch of the run its ranks work on: one rank that
// takes N micro-batches has the numbers of N ranks that take one each.
void set_batch_number(Executor& executor, const RunSpec& spec, std::int64_t number);

// Fills weights and inputs quickly, for steps whose results are not read.
void fill_for_timing(Session& session);

}  // namespace tracestep
