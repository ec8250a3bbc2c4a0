#include "ir/builder.h"

#include <fmt/ranges.h>

#include "base/suggest.h"

namespace tracestep {
namespace {

// Throws if a count or an offset of a value, in bytes of the widest type, does not fit in 64 bits.
void check_size(std::string_view where, const Shape& shape) {
  std::int64_t bytes = sizeof(double);
  for (std::int64_t d : shape) {
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(d, 1), &bytes)) {
      fail_usage(std::string(where), "a value of {} has more bytes than 64 bits can count",
                 shape.str());
    }
  }
}

void check_arity(const OpDef& op, std::size_t given) {
  const std::size_t named = op.inputs.size();
  if (op.is_variadic() ? given + 1 >= named && given > 0 : given == named) return;
  // Trailing operands declared as "name?" are optional.
  std::size_t required = named;
  while (required > 0 && op.inputs[required - 1].ends_with("?")) --required;
  if (!op.is_variadic() && given >= required && given <= named) return;
  fail_usage(op, "{} operands given; it takes {}", given, fmt::join(op.inputs, ", "));
}

// Checks a leaf's place in its block. Inputs have memory of their own: executors allocate them.
void check_part(LeafKind kind, std::string_view name, const Type& type, const BlockPart& part) {
  if (part.block.empty()) return;
  if (kind == LeafKind::kInput) fail_usage("program", "input {} cannot be part of a block", name);
  check_size(part.block, {part.count});
  if (part.offset < 0 || type.count() > part.count || part.offset > part.count - type.count()) {
    fail_usage("program", "the {} elements of {} do not fit at {} of the {} in block {}",
               type.count(), name, part.offset, part.count, part.block);
  }
}

}  // namespace

Builder::Builder(const Program& like) : Builder(like.name) {
  program_.values.reserve(like.values.size() + like.values.size() / 8);
  program_.nodes.reserve(like.nodes.size() + like.nodes.size() / 8);
}

Val Builder::state_of(Val parameter, std::string_view prefix, DType dtype, Role role) {
  const Value& of = program_.value(parameter.id);
  BlockPart part = of.part;
  if (!part.block.empty()) part.block.insert(0, prefix);
  return leaf(LeafKind::kState, std::string(prefix) + of.name, {dtype, of.type.shape}, role,
              std::move(part));
}

void Builder::set_part(Val leaf, BlockPart part) {
  Value& value = mutable_value(leaf);
  check_part(value.leaf, value.name, value.type, part);
  value.part = std::move(part);
}

Val Builder::leaf(LeafKind kind, std::string_view name, Type type, Role role, BlockPart part) {
  if (name.empty()) fail_usage("program", "a leaf needs a name");
  check_size(name, type.shape);
  check_part(kind, name, type, part);
  if (!leaf_names_.emplace(name).second) {
    fail_usage("program", "leaf '{}' exists already", name);
  }
  const auto id = static_cast<ValueId>(program_.values.size());
  Value value;
  value.layout = {id, 0, contiguous_strides(type.shape)};
  value.type = type;
  value.leaf = kind;
  value.role = role;
  value.name = std::string(name);
  value.part = std::move(part);
  program_.values.push_back(std::move(value));
  program_.leaves.push_back(id);
  return {this, id};
}

std::vector<Val> Builder::call(const OpDef& op, std::vector<Val> inputs, Attrs attrs, Here here) {
  check_arity(op, inputs.size());
  Node node;
  node.op = &op;
  node.attrs = checked_attrs(op, std::move(attrs));
  node.origins = origins_for(here);
  node.made_by = context_.made_by;
  node.epoch = context_.epoch;
  return add(std::move(node), inputs);
}

bool Builder::are_alike(const Program& from, const Node& node,
                        const std::vector<Val>& inputs) const {
  if (inputs.size() != node.inputs.size()) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].builder != this || inputs[i].id == kNoValue) return false;
    const Value &now = program_.value(inputs[i].id), &then = from.value(node.inputs[i]);
    if (now.type != then.type) return false;
    const bool lies_alike =
        now.layout.offset == then.layout.offset && now.layout.strides == then.layout.strides;
    if (node.op->view && !lies_alike) return false;
  }
  return true;
}

// Adds a copy of `node`. Infers types again only where `inputs` have other types or layouts.
std::vector<Val> Builder::copy(const Program& from, const Node& node,
                               const std::vector<Val>& inputs) {
  Node out{node.op, node.attrs, {}, {}, node.origins, node.made_by, node.epoch};
  if (!are_alike(from, node, inputs)) {
    check_arity(*node.op, inputs.size());
    return add(std::move(out), inputs);
  }
  out.inputs.reserve(inputs.size());
  for (const Val& v : inputs) out.inputs.push_back(v.id);
  const auto id = static_cast<NodeId>(program_.nodes.size());
  std::vector<Val> results;
  results.reserve(node.outputs.size());
  out.outputs.reserve(node.outputs.size());
  for (ValueId old : node.outputs) {
    const Value& then = from.value(old);
    std::optional<Layout> view;
    if (then.layout.base != old) {
      view = then.layout;
      view->base = program_.value(inputs[0].id).layout.base;
    }
    out.outputs.push_back(add_result(id, then.output_index, then.type, view));
    results.push_back({this, out.outputs.back()});
  }
  program_.nodes.push_back(std::move(out));
  return results;
}

std::vector<Val> Builder::add(Node node, const std::vector<Val>& inputs) {
  const OpDef& op = *node.op;
  std::vector<Type> types;
  types.reserve(inputs.size());
  node.inputs.reserve(inputs.size());
  for (const Val& v : inputs) {
    TRACESTEP_CHECK(v.builder == this && v.id != kNoValue, "{}: operand of another builder",
                    op.name);
    node.inputs.push_back(v.id);
    types.push_back(type(v));
  }
  const std::vector<Type> results = op.infer({op, node.attrs, types, {}});
  for (const Type& result : results) check_size(op.name, result.shape);

  std::optional<Layout> view;
  if (op.view) {
    const Layout& from = program_.value(node.inputs.at(0)).layout;
    view = op.view({op, node.attrs, types, results}, from);
    if (view) view->base = from.base;
  }
  const auto id = static_cast<NodeId>(program_.nodes.size());
  std::vector<Val> out;
  for (std::size_t i = 0; i < results.size(); ++i) {
    node.outputs.push_back(add_result(id, static_cast<int>(i), results[i], view));
    out.push_back({this, node.outputs.back()});
  }
  program_.nodes.push_back(std::move(node));
  return out;
}

Val Builder::call1(std::string_view op, std::vector<Val> inputs, Attrs attrs, Here here) {
  return call(find_op(op), std::move(inputs), std::move(attrs), here).front();
}

ValueId Builder::add_result(NodeId node, int index, Type type, std::optional<Layout> view) {
  const auto id = static_cast<ValueId>(program_.values.size());
  Value value;
  value.layout = view ? *view : Layout{id, 0, contiguous_strides(type.shape)};
  value.type = type;
  value.producer = node;
  value.output_index = index;
  program_.values.push_back(std::move(value));
  return id;
}

Attrs Builder::checked_attrs(const OpDef& op, Attrs attrs) const {
  for (const auto& [name, value] : attrs.entries()) {
    const AttrDef* def = op.find_attr(name);
    if (def == nullptr) {
      std::vector<std::string> known;
      known.reserve(op.attrs.size());
      for (const AttrDef& d : op.attrs) known.push_back(d.name);
      const auto close = closest(name, known);
      throw Error(ErrorCode::kUsage, op, fmt::format("there is no attribute '{}'", name),
                  close ? fmt::format("did you mean '{}'?", *close) : "");
    }
    if (def->kind != kind_of(value)) {
      fail_usage(op, "attribute '{}' has the wrong kind of value", name);
    }
  }
  for (const AttrDef& def : op.attrs) {
    if (attrs.find(def.name) != nullptr) continue;
    if (!def.fallback) fail_usage(op, "attribute '{}' is missing: {}", def.name, def.doc);
    attrs.set(def.name, *def.fallback);
  }
  return attrs;
}

SharedVector<Origin> Builder::origins_for(const Here& here) const {
  if (!context_.origins.empty()) return context_.origins;
  return {Origin{context_.path, context_.phase, here.file_name(), static_cast<int>(here.line())}};
}

void Builder::output(std::string_view name, Val value) {
  if (program_.find_output(name) != kNoValue) {
    fail_usage("program", "output '{}' exists already", name);
  }
  program_.outputs.push_back({std::string(name), value.id});
}

void Builder::update(Val leaf, Val value) {
  const Value& target = program_.value(leaf.id);
  if (target.leaf != LeafKind::kParameter && target.leaf != LeafKind::kState) {
    fail_usage("update", "only a parameter or a state can be updated");
  }
  if (target.type != type(value)) {
    fail_usage("update", "{} is {}, its new value {}", target.name, target.type.str(),
               type(value).str());
  }
  if (!updated_.insert(leaf.id).second) {
    fail_usage("update", "{} is updated twice", target.name);
  }
  program_.updates.push_back({leaf.id, value.id});
}

Program Builder::finish() {
  leaf_names_.clear();
  updated_.clear();
  return std::move(program_);
}

Builder::Guard Builder::scope(std::string_view path) {
  Guard guard(this);
  const auto append = [path](std::string& to) {
    if (!to.empty() && !path.empty()) to += '.';
    to += path;
  };
  append(context_.path);
  if (context_.origins.empty()) return guard;
  for (Origin& origin : context_.origins.edit()) append(origin.path);
  return guard;
}

Builder::Guard Builder::phase(Phase phase) {
  Guard guard(this);
  context_.phase = phase;
  return guard;
}

Builder::Guard Builder::made_by(std::string_view pass) {
  Guard guard(this);
  context_.made_by = std::string(pass);
  return guard;
}

Builder::Guard Builder::like(const Node& node, const Phase* phase) {
  Guard guard(this);
  context_.origins = node.origins;
  context_.made_by = node.made_by;
  context_.epoch = node.epoch;
  if (phase != nullptr) {
    for (Origin& origin : context_.origins.edit()) origin.phase = *phase;
  }
  return guard;
}

Builder::Guard Builder::like(std::span<const Node* const> nodes) {
  Guard guard = like(*nodes.front());
  for (const Node* node : nodes.subspan(1)) {
    std::vector<Origin>& all = context_.origins.edit();
    all.insert(all.end(), node->origins.begin(), node->origins.end());
  }
  return guard;
}

}  // namespace tracestep
