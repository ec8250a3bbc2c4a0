// Assemblies: tensors whose parts are written in place by the nodes that compute them (the op
// `assemble`). Finds which result must be written where.
#pragma once

#include <optional>
#include <vector>

#include "analysis/readers.h"
#include "ir/program.h"

namespace tracestep {

// A node's result that is a part of an assembly.
struct AssembledPart {
  ValueId value = kNoValue;  // The result, which is dense in the program.
  Layout place;              // The place of its elements, relative to the assembly's result.
};

// Returns the result that operand `input` of an assembly is, or is a view of, with its place
// there. nullopt: it cannot be written in place, because it has other readers, is a leaf or
// empty, or its producer cannot write with these strides; `materialize` copies such an operand.
std::optional<AssembledPart> part_of_assembly(const Program& program, const Readers& readers,
                                              const Node& assembly, int input);

// Returns the parts of all assemblies, without empty ones; the program has been materialized.
std::vector<AssembledPart> assembled_parts(const Program& program);

}  // namespace tracestep
