#include "runtime/store.h"

namespace tracestep {
namespace {

Category category_of(const Value& leaf) {
  if (leaf.leaf == LeafKind::kParameter) return Category::kParameter;
  switch (leaf.role) {
    case Role::kGradient: return Category::kGradient;
    case Role::kWeightCast: return Category::kWeightCast;
    case Role::kCache: return Category::kActivation;
    case Role::kOptimizerState:
    case Role::kNone: break;
  }
  return Category::kOptimizerState;
}

}  // namespace

Store::~Store() {
  for (auto& [name, entry] : entries_) device_.allocator().free(entry.data);
}

void Store::bind(const Program& program) {
  std::vector<std::string> had;  // parameters
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const bool is_new = find(shadow_name(leaf.name)) == nullptr;
    if (leaf.leaf == LeafKind::kParameter && is_new && find(leaf.name) != nullptr) {
      had.push_back(leaf.name);
    }
  }
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kInput) continue;
    const auto found = entries_.find(leaf.name);
    if (found != entries_.end()) {
      if (found->second.type != leaf.type) {
        fail_usage("store", "{} is {}, program {} expects {}", leaf.name, found->second.type.str(),
                   program.name, leaf.type.str());
      }
      continue;
    }
    const auto slot = entries_.emplace(leaf.name, Entry{leaf.type, leaf.leaf, category_of(leaf)});
    Entry& entry = slot.first->second;
    try {
      entry.data = device_.allocator().allocate(leaf.type.bytes(),
                                                {entry.category, kWholeStep, slot.first->first});
    } catch (...) {
      entries_.erase(slot.first);
      throw;
    }
    if (leaf.leaf == LeafKind::kState) zero(leaf.name);
  }
  for (const std::string& name : had) {
    if (device_.computes() && find(shadow_name(name)) != nullptr) set_shadow(name, get(name));
  }
  check_shadows(program);
}

void Store::check_shadows(const Program& program) const {
  for (const Update& u : program.updates) {
    const Value& leaf = program.value(u.leaf);
    const std::string shadow = shadow_name(leaf.name);
    if (leaf.leaf != LeafKind::kParameter || find(shadow) == nullptr) continue;
    if (program.find_leaf(shadow) != kNoValue) continue;
    fail_usage("store", "program {} updates {}, but not its narrow copy {}", program.name,
               leaf.name, shadow);
  }
}

const Store::Entry* Store::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

const Store::Entry& Store::at(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) fail_usage("store", "there is no tensor called '{}'", name);
  return *entry;
}

std::vector<std::string> Store::names(LeafKind kind) const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : entries_) {
    if (entry.kind == kind) out.push_back(name);
  }
  return out;
}

void Store::set(std::string_view name, const TensorView& value) {
  const Entry& entry = at(name);
  if (entry.type != Type{value.dtype, value.shape}) {
    fail_usage("store", "{} is {}, the new value {}", name, entry.type.str(),
               Type{value.dtype, value.shape}.str());
  }
  copy_in(entry, value);
  set_shadow(name, value);
}

void Store::copy_in(const Entry& entry, const TensorView& value) {
  if (!value.bytes.empty()) device_.copy_in(entry.data, value.bytes.data(), entry.type.bytes());
}

void Store::set_shadow(std::string_view parameter, const TensorView& value) {
  const Entry* shadow = find(shadow_name(parameter));
  if (shadow == nullptr || !device_.computes()) return;
  copy_in(*shadow, narrowed(value, shadow->type.dtype));
}

HostTensor Store::get(std::string_view name) const {
  const Entry& entry = at(name);
  HostTensor out = HostTensor::zeros(entry.type.dtype, entry.type.shape);
  if (!out.bytes.empty()) device_.copy_out(out.bytes.data(), entry.data, entry.type.bytes());
  return out;
}

void Store::zero(std::string_view name) {
  const Entry& entry = at(name);
  device_.zero(entry.data, entry.type.bytes());
}

}  // namespace tracestep
