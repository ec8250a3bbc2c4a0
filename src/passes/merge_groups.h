// Finds products that can be computed as one; `merge` writes the new program.
#pragma once

#include <map>
#include <utility>
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

// Products with all parts of a block, which are terms of one sum.
struct SummedProducts {
  MergeGroup products;
  int summed_axis = 0;  // of the products' other operands
  // The sums of the other operands over all their rows (gradients of biases), if each operand has
  // one: in the order of the parts.
  std::vector<NodeId> column_sums = {};
};

// A term of a sum, with the views and casts between it and the sum, in order.
struct SumTerm {
  ValueId value = kNoValue;
  std::vector<NodeId> chain = {};
};

// A sum of which some terms are products that are merged, in groups; the other terms stay.
struct MergedSum {
  std::vector<SummedProducts> groups;
  std::vector<SumTerm> rest = {};  // terms that stay
};

// Names the assembly of a group's other operands: by the sum, and the number of the group in it.
using AssemblyId = std::pair<NodeId, std::size_t>;

// What find_merges() finds: groups, by the node in whose place each is computed.
struct Merges {
  std::map<NodeId, MergeGroup> with_blocks;    // one operand with all parts of a block
  std::map<NodeId, MergedSum> sums;            // of products with all parts of a block
  std::map<NodeId, MergeGroup> of_assemblies;  // one value with all other operands of such a sum
  std::map<ValueId, AssemblyId> assembled;     // by such an operand
  std::vector<bool> replaced;                  // by node: a merged node stands for it
  // For each node, the assemblies of which it reads slices, in place of the operands in them.
  std::map<NodeId, std::vector<AssemblyId>> read_slices;
};

Merges find_merges(const Program& program);

// Returns `id` if it is a leaf, or the leaf of which `id` is the narrow copy; kNoValue: neither.
ValueId weight_behind(const Program& program, ValueId id);

}  // namespace tracestep
