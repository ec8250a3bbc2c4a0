// Answers from predicted bytes: of a grid of contexts and precisions of one size that need not fit
// here, and of what a loop over forward alone holds. Throws Unsupported where the tables lack rows.
#pragma once

#include "lab/report/question.h"

namespace tracestep::planned {

Text components(const Evidence& evidence);
Text peaks(const Evidence& evidence);
Text low_precision(const Evidence& evidence);
Text which_forward(const Evidence& evidence);
Text residual(const Evidence& evidence);
Text static_bytes(const Evidence& evidence);
Text two_graphs(const Evidence& evidence);

}  // namespace tracestep::planned
