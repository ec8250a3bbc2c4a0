// Assemblies: tensors whose parts are written in place by the nodes that compute them (the op
// `assemble`). Which result has to be written where.
#pragma once

#include <optional>
#include <vector>

#include "analysis/readers.h"
#include "ir/program.h"

namespace tracestep {

// A node's result that is a part of an assembly.
struct AssembledPart {
  ValueId value = kNoValue;  // the result, which is dense in the program
  Layout place;              // where its elements go; the base is the assembly's result
};

// Where operand `input` of the assembly comes from. nullopt: it cannot be written in place, since
// it has other readers, is a leaf, or its producer does not write with these strides; `materialize`
// copies such operands.
std::optional<AssembledPart> part_of_assembly(const Program& program, const Readers& readers,
                                              const Node& assembly, int input);

// All parts of all assemblies of a materialized program.
std::vector<AssembledPart> assembled_parts(const Program& program);

}  // namespace tracestep
