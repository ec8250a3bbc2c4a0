// Finds products that can be computed as one; `merge` writes the new program.
#pragma once

#include <map>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// A product with one operand that is merged with operands of other products.
struct MergedProduct {
  NodeId node = kNoNode;
  int merged = 0;  // the operand
  // For a product in a sum: the views and casts between the product and the sum, in order.
  std::vector<NodeId> chain = {};

  int shared() const { return 1 - merged; }
};

// The index of the operand that a product adds to each row of its result.
inline constexpr int kBias = 2;
inline bool has_bias(const Node& product) {
  return product.inputs.size() == 3;
}

// Products that become one product.
struct MergeGroup {
  std::vector<MergedProduct> members;  // The products, in the order of the block's parts.
  NodeId where = kNoNode;              // The node in whose place the merged product is computed.
  bool is_apart = false;  // True: they stay separate products, each of its own part of an assembly.
};

// A sum whose terms contain the products of a group.
struct MergedSum {
  MergeGroup products;
  int summed_axis = 0;             // The axis of the products' other operands over which they sum.
  std::vector<ValueId> rest = {};  // Terms of the sum that are no products of the group.
  // The sums of the other operands over all their rows (gradients of biases), in the order of the
  // parts; empty unless each operand has one.
  std::vector<NodeId> column_sums = {};
};

// All groups, by the node in whose place each is computed.
struct Merges {
  std::map<NodeId, MergeGroup> with_blocks;  // Products of one operand with all parts of a block.
  std::map<NodeId, MergedSum> sums;          // Sums of products with all parts of a block.
  // Products of one value with all other operands of such a sum.
  std::map<NodeId, MergeGroup> of_assemblies;
  std::map<ValueId, NodeId> assembled;  // For each of these operands, the sum.
  std::vector<bool> replaced;           // For each node, whether a merged node replaces it.
};

Merges find_merges(const Program& program);

// The leaf that the value is, or of which it is the narrow copy; kNoValue: neither.
ValueId weight_behind(const Program& program, ValueId id);

}  // namespace tracestep
