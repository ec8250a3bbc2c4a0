// The readers of every value: nodes, views included, and the end of the program.
#pragma once

#include <vector>

#include "ir/program.h"

namespace tracestep {

struct Readers {
  // For each value, the nodes that read it; a node that reads it twice is listed twice.
  std::vector<std::vector<NodeId>> nodes;
  std::vector<bool> at_end;  // For each value, whether it is an output or the new value of a leaf.

  explicit Readers(const Program& program);

  // Returns the only reader of a value, if it reads the value once; kNoNode: there are more
  // readers, or none.
  NodeId only(ValueId id) const;
};

// True if the node may as well run after `until`: no leaf that it reads has got its new value by
// then.
bool can_wait(const Program& program, const Node& node, NodeId until);

}  // namespace tracestep
