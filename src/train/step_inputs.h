// Fills the inputs of a step, for measurements: random tokens, small learning rates, and weights
// that are quick to make.
#pragma once

#include "exec/executor.h"
#include "session/session.h"
#include "spec/step_program.h"
#include "tokens/batches.h"

namespace tracestep {

// Sets every input that the program has: tokens and targets drawn from the run's seed, and the
// learning rate and step size of an optimizer's first step.
void set_step_inputs(Executor& executor, const RunSpec& spec);
// Sets the inputs to a batch of a text, whose tokens were checked. A captured module has its own
// names for them.
void set_batch(Executor& executor, const RunSpec& spec, const Batch& batch);
// Sets which batch of the run a captured module with dropout works on, by its number: one rank with
// N micro-batches has the same numbers as N ranks with one each.
void set_batch_number(Executor& executor, const RunSpec& spec, std::int64_t number);

// Fills weights and inputs quickly, for steps whose results are not read.
void fill_for_timing(Session& session);

}  // namespace tracestep
