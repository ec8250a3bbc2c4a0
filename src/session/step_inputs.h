// Inputs of a measured step: random tokens and small learning rates.
#pragma once

#include "exec/executor.h"
#include "spec/step_program.h"

namespace tracestep {

// Sets every input that the program has: tokens and targets drawn from the run's seed, the learning
// rate and the step size of an optimizer's first step.
void set_step_inputs(Executor& executor, const RunSpec& spec);

}  // namespace tracestep
