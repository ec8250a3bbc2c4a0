// The program of a captured module's folder: text that may be hostile.
#pragma once

#include <string>

#include "ir/program.h"

namespace tracestep {

// Parses the text, which types every node anew. Error{kInput} naming `where` for a program that
// holds more than a forward pass does: states, updates, collectives, nodes of other phases, outputs
// other than a loss and logits; for leaves with names of ours; and for values of impossible size.
Program read_forward_program(const std::string& text, const std::string& where);

}  // namespace tracestep
