// The readers of every value: nodes, views included, and the end of the program.
#pragma once

#include <vector>

#include "ir/program.h"

namespace tracestep {

struct Readers {
  std::vector<std::vector<NodeId>> nodes;  // by value; a node that reads it twice stands twice
  std::vector<bool> at_end;                // by value: an output, or the new value of a leaf

  explicit Readers(const Program& program);

  // The node that alone reads the value, once; kNoNode: there are more readers, or none.
  NodeId only(ValueId id) const;
};

// Tells whether the node may as well run behind `until`, because no leaf that it reads has got its
// new value by then.
bool can_wait(const Program& program, const Node& node, NodeId until);

}  // namespace tracestep
