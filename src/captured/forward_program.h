// Reads the program in a captured module's folder, whose text may be hostile.
#pragma once

#include <string>

#include "ir/program.h"

namespace tracestep {

// Parses the text and infers every type anew. Throws Error{kInput} naming `where` if the program
// has more than a forward pass (states, updates, collectives, nodes of other phases, outputs other
// than a loss and logits), if leaves have reserved names, and for values of impossible size.
Program read_forward_program(const std::string& text, const std::string& where);

// Places parameters that multiply the same input, in one part of the model, side by side in a block
// of memory (BlockPart in ir/program.h), in the order of their products; and their biases likewise.
void place_side_by_side(Program& program);

}  // namespace tracestep
