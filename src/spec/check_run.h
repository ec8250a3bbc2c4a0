// Which settings of a run refuse each other, whoever gives them: a flag, a grid, a search.
#pragma once

#include "run/run_spec.h"

namespace tracestep {

// Error{kUsage} naming the field: sizes of a model that do not fit together, another shape than
// that of a captured module, moments in 8 bits of which ranks would hold parts, or of Muon, Muon
// for a model without matrices in layers, a budget of recomputation beside offloaded activations, a
// step beyond what 64 bits can count. What ranks cannot divide is refused by rank_shape()
// (spec/step_program.h), a field without effect by RunGrid::runs().
void check_run(const RunSpec& spec);

}  // namespace tracestep
