// The program of a captured module's folder: text that may be hostile.
#pragma once

#include <string>

#include "ir/program.h"

namespace tracestep {

// Parses the text, which types every node anew. Error{kInput} naming `where` for a program that
// holds more than a forward pass does: states, updates, collectives, nodes of other phases, outputs
// other than a loss and logits; for leaves with names of ours; and for values of impossible size.
Program read_forward_program(const std::string& text, const std::string& where);

// Gives parameters that multiply the same input, in one part of the model, a block of memory
// (BlockPart in ir/program.h) in the order of their products; their biases, too.
void place_side_by_side(Program& program);

}  // namespace tracestep
