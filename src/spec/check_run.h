// Checks whether the settings of a run go together, wherever they come from: flags, a grid or a
// search.
#pragma once

#include "run/run_spec.h"

namespace tracestep {

// Throws Error{kUsage} naming the field: for model sizes that do not fit together, a shape other
// than the captured module's, 8-bit moments of which ranks would hold parts, or of Muon, Muon for a
// model without matrices in layers, a recomputation budget together with offloaded activations, and
// a step too large to count in 64 bits. rank_shape() (spec/step_program.h) refuses what ranks
// cannot divide, and RunGrid::runs() fields without effect.
void check_run(const RunSpec& spec);

}  // namespace tracestep
