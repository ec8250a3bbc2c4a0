#include "ir/op_def.h"

#include <map>
#include <mutex>

#include "base/suggest.h"
#include "ir/builder.h"

namespace tracestep {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> by_name;
  std::vector<const OpDef*> in_order;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

Type Val::type() const {
  return builder->type(*this);
}

const AttrDef* OpDef::find_attr(std::string_view attr) const {
  for (const AttrDef& def : attrs) {
    if (def.name == attr) return &def;
  }
  return nullptr;
}

const OpForm* OpDef::find_form(std::string_view form) const {
  for (const OpForm& known : forms) {
    if (known.name == form) return &known;
  }
  return nullptr;
}

const OpDef& register_op(OpDef op) {
  if (op.name.empty() || !op.infer) fail_usage("register_op", "an op needs a name and a type rule");
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.by_name.contains(op.name)) fail_usage("register_op", "op '{}' exists already", op.name);
  auto owned = std::make_unique<OpDef>(std::move(op));
  const OpDef* raw = owned.get();
  r.by_name.emplace(raw->name, std::move(owned));
  r.in_order.push_back(raw);
  return *raw;
}

const OpDef* find_op_or_null(std::string_view name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto found = r.by_name.find(name);
  return found == r.by_name.end() ? nullptr : found->second.get();
}

bool makes_views(const Program& program, const Node& node) {
  return node.op->is_view() && is_view(program, node.outputs[0]);
}

bool launches(const Program& program, const Node& node) {
  return !makes_views(program, node) && !node.op->is_assembly();
}

std::vector<Donation> donations_of(const Node& node) {
  return node.op->donates_in_groups ? node.op->donates_in_groups(node.attrs, node.inputs.size())
                                    : node.op->donates;
}

const OpDef& find_op(std::string_view name) {
  if (const OpDef* op = find_op_or_null(name)) return *op;
  std::vector<std::string> names;
  for (const OpDef* op : all_ops()) names.push_back(op->name);
  const auto close = closest(name, names);
  throw Error(ErrorCode::kUsage, "program", fmt::format("there is no op '{}'", name),
              close ? fmt::format("did you mean '{}'?", *close) : "");
}

std::vector<const OpDef*> all_ops() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.in_order;
}

}  // namespace tracestep
