// Runs of captured modules (captured/captured_model.h): what the module decides instead of flags.
#pragma once

#include "spec/run_grid.h"

namespace tracestep {

// Gives the run of a captured module the module's shape, and the precision of its parameters where
// none is given. With replicas each has a batch of that shape. Error{kUsage} naming the field for
// sizes, a shape or a division of the model that the module does not have.
void settle_captured(const RunGrid& grid, RunSpec& run);

// Error{kUsage} naming the field for another shape than that of the run's captured module.
void check_captured_shape(const RunSpec& run);

}  // namespace tracestep
