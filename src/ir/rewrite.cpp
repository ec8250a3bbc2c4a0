#include "ir/rewrite.h"

namespace tracestep {

Rewriter::Rewriter(const Program& from, std::string_view pass)
    : from_(from), pass_(pass), builder_(from), map_(from.values.size()) {
  for (ValueId id : from.leaves) {
    const Value& v = from.value(id);
    Val& leaf = map_[static_cast<std::size_t>(id)];
    leaf = builder_.leaf(v.leaf, v.name, v.type, v.role, v.part);
    builder_.set_memory(leaf, v.memory);
  }
}

Val Rewriter::map(ValueId old) const {
  const Val found = map_[static_cast<std::size_t>(old)];
  TRACESTEP_CHECK(found, "pass {}: value {} was dropped but is still read", pass_, old);
  return {const_cast<Builder*>(&builder_), found.id};
}

std::vector<Val> Rewriter::inputs(const Node& node) const {
  std::vector<Val> out;
  out.reserve(node.inputs.size());
  for (ValueId id : node.inputs) out.push_back(map(id));
  return out;
}

std::vector<Val> Rewriter::copy(const Node& node, const std::vector<Val>& inputs) {
  std::vector<Val> out = builder_.copy(from_, node, inputs);
  replace(node, out);
  return out;
}

void Rewriter::replace(const Node& node, const std::vector<Val>& values) {
  TRACESTEP_CHECK(values.size() == node.outputs.size(), "pass {}: results of {}", pass_,
                  node.op->name);
  for (std::size_t i = 0; i < values.size(); ++i) replace(node.outputs[i], values[i]);
}

void Rewriter::replace(ValueId old, Val value) {
  map_[static_cast<std::size_t>(old)] = value;
  const Role role = from_.value(old).role;
  if (value && role != Role::kNone) builder_.set_role(value, role);
}

Builder::Guard Rewriter::from(const Node& node, const Phase* phase) {
  auto guard = builder_.like(node, phase);
  builder_.set_made_by(pass_);
  return guard;
}

Program Rewriter::finish() {
  for (const Update& u : from_.updates) builder_.update(map(u.leaf), map(u.value));
  for (const Output& o : from_.outputs) builder_.output(o.name, map(o.value));
  return builder_.finish();
}

std::vector<Val> inline_program(Builder& builder, const Program& body,
                                std::span<const Val> inputs) {
  TRACESTEP_CHECK(inputs.size() == body.leaves.size(), "{}: operands of the body", body.name);
  std::vector<Val> map(body.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    map[static_cast<std::size_t>(body.leaves[i])] = inputs[i];
  }
  for (const Node& node : body.nodes) {
    const bool anonymous = node.origins.size() == 1 && node.origin().path.empty();
    std::vector<Val> operands;
    operands.reserve(node.inputs.size());
    for (ValueId id : node.inputs) operands.push_back(map[static_cast<std::size_t>(id)]);
    const std::vector<Val> results = anonymous ? builder.call(*node.op, operands, node.attrs)
                                               : builder.copy(body, node, operands);
    for (std::size_t i = 0; i < results.size(); ++i) {
      map[static_cast<std::size_t>(node.outputs[i])] = results[i];
      const Role role = body.value(node.outputs[i]).role;
      if (role != Role::kNone) builder.set_role(results[i], role);
    }
  }
  std::vector<Val> out;
  out.reserve(body.outputs.size());
  for (const Output& o : body.outputs) out.push_back(map[static_cast<std::size_t>(o.value)]);
  return out;
}

}  // namespace tracestep
