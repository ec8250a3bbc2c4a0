// Helps passes to make a new program from an old one, node by node.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace tracestep {

// Copies a program node by node into a new builder; a pass replaces some of the nodes.
//
//   Rewriter r(program, "fuse");
//   for (const Node& node : program.nodes) {
//     if (interesting(node)) r.replace(node, build_something(r.builder(), r.inputs(node)));
//     else r.copy(node);
//   }
//   return r.finish();
class Rewriter {
 public:
  // Copies all leaves. `pass`: its name marks the nodes that the pass makes itself.
  Rewriter(const Program& from, std::string_view pass);

  Builder& builder() { return builder_; }
  // Returns the new value that replaces `old`.
  Val map(ValueId old) const;
  // True if `old` has a new value already.
  bool has(ValueId old) const { return static_cast<bool>(map_[static_cast<std::size_t>(old)]); }
  std::vector<Val> inputs(const Node& node) const;
  // Copies `node` with its origins; the copy's results replace the old ones.
  std::vector<Val> copy(const Node& node) { return copy(node, inputs(node)); }
  // Copies `node` with its origins, but the copy reads `inputs` and not the node's own inputs.
  std::vector<Val> copy(const Node& node, const std::vector<Val>& inputs);
  // Sets the values that replace the results of `node`; "no value" for a result without readers.
  void replace(const Node& node, const std::vector<Val>& values);
  // Sets the value that replaces one old value.
  void replace(ValueId old, Val value);
  // While the guard exists, nodes that builder() makes get the origins of `node`.
  [[nodiscard]] Builder::Guard from(const Node& node, const Phase* phase = nullptr);

  // Copies updates and outputs, and returns the new program.
  Program finish();

 private:
  const Program& from_;
  std::string pass_;
  Builder builder_;
  std::vector<Val> map_;
};

// Adds the nodes of `body` to `builder` with its leaves bound to `inputs`; returns the values of
// its outputs. Roles and origins are kept, except that empty origins take the builder's own.
std::vector<Val> inline_program(Builder& builder, const Program& body, std::span<const Val> inputs);

}  // namespace tracestep
