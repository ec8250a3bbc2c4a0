// What of a step lies in the host's memory.
#pragma once

#include "ir/program.h"

namespace tracestep {

// Places in the host's memory what only updates read: the optimizer's moments, and weights whose
// narrow copies the rest of the step reads. Scalar states stay where they are. The nodes are the
// same, and so are their results: the kernels of the updates read and write the host's memory
// directly, both ways at once, so that nothing is copied and no buffer of the device holds a part
// of it.
Program offload(const Program& program);

}  // namespace tracestep
