#include "runtime/store.h"

#include <algorithm>
#include <set>

#include "runtime/lent_memory.h"

namespace tracestep {
namespace {

Category category_of(const Value& leaf) {
  if (leaf.leaf == LeafKind::kParameter) return Category::kParameter;
  if (leaf.leaf == LeafKind::kConstant) return Category::kConstant;
  switch (leaf.role) {
    case Role::kGradient: return Category::kGradient;
    case Role::kWeightCast: return Category::kWeightCast;
    case Role::kCache: return Category::kActivation;
    case Role::kOptimizerState:
    case Role::kNone: break;
  }
  return Category::kOptimizerState;
}

// Returns the leaves that `known` does not know, those of a block together and in their order.
template <class Known>
std::vector<std::vector<const Value*>> new_leaves(const Program& program, const Known& known) {
  std::vector<std::vector<const Value*>> out;
  std::map<std::string_view, std::size_t> of_block;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kInput || known(leaf.name)) continue;
    if (leaf.part.block.empty()) {
      out.push_back({&leaf});
      continue;
    }
    const auto [found, is_new] = of_block.emplace(leaf.part.block, out.size());
    if (is_new) out.emplace_back();
    out[found->second].push_back(&leaf);
  }
  for (auto& leaves : out) {
    std::ranges::sort(leaves, {}, [](const Value* leaf) { return leaf->part.offset; });
  }
  return out;
}

void check_whole(const std::vector<const Value*>& leaves, const Program& program) {
  const BlockPart& first = leaves.front()->part;
  if (first.block.empty()) return;
  std::int64_t reached = 0;
  for (const Value* leaf : leaves) {
    const bool follows = leaf->part.offset == reached && leaf->part.count == first.count &&
                         leaf->type.dtype == leaves.front()->type.dtype;
    if (!follows) break;
    reached += leaf->type.count();
  }
  if (reached == first.count) return;
  fail_usage("store", "the leaves of program {} do not fill block {} of {} elements without gaps",
             program.name, first.block, first.count);
}

}  // namespace

Store::~Store() {
  for (const Block& block : blocks_) block.allocator->free(block.data);
}

void Store::bind(const Program& program) {
  std::vector<std::string> had;  // parameters and constants
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const bool is_new = find(shadow_name(leaf.name)) == nullptr;
    const bool has_copy = leaf.leaf == LeafKind::kParameter || leaf.leaf == LeafKind::kConstant;
    if (has_copy && is_new && find(leaf.name) != nullptr) {
      had.push_back(leaf.name);
    }
  }
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const auto held = entries_.find(leaf.name);
    if (leaf.leaf != LeafKind::kInput && held != entries_.end()) check_same(*held, leaf, program);
  }
  const auto known = [&](const std::string& name) { return entries_.contains(name); };
  for (const auto& leaves : new_leaves(program, known)) {
    check_whole(leaves, program);
    allocate(leaves);
  }
  for (const std::string& name : had) {
    if (device_.computes() && find(shadow_name(name)) != nullptr) set_shadow(name, get(name));
  }
  check_copies(program);
}

void Store::check_same(const Name& held, const Value& leaf, const Program& program) const {
  const auto& [name, entry] = held;
  if (entry.type != leaf.type) {
    fail_usage("store", "{} is {}, program {} expects {}", name, entry.type.str(), program.name,
               leaf.type.str());
  }
  if (entry.part == leaf.part) return;
  const auto place = [](const BlockPart& part) {
    return part.block.empty() ? std::string("memory of its own")
                              : fmt::format("block {} at {}", part.block, part.offset);
  };
  fail_usage("store", "{} has {}, program {} expects {}", name, place(entry.part), program.name,
             place(leaf.part));
}

void Store::allocate(const std::vector<const Value*>& leaves) {
  const Memory memory = leaves.front()->memory;
  Block& block = blocks_.emplace_back();
  block.allocator = memory == Memory::kHost ? &device_.host_allocator() : &device_.allocator();
  std::vector<Name*> added;
  std::int64_t bytes = 0;
  for (const Value* leaf : leaves) {
    const Entry entry{leaf->type, leaf->leaf, category_of(*leaf), leaf->part, memory};
    added.push_back(&*entries_.emplace(leaf->name, entry).first);
    bytes += leaf->type.bytes();
    if (leaves.size() > 1) block.parts.push_back({leaf->type.bytes(), added.back()->first});
  }
  const Name& first = *added.front();
  try {
    block.data = block.allocator->allocate(
        bytes, {first.second.category, kWholeStep, first.first, block.parts});
  } catch (...) {
    blocks_.pop_back();
    for (const Name* name : added) entries_.erase(entries_.find(name->first));
    throw;
  }
  auto* data = static_cast<std::byte*>(block.data);
  for (Name* name : added) {
    Entry& entry = name->second;
    entry.data = data;
    if (data != nullptr) data += entry.type.bytes();
    const bool is_kept = is_lent(*block.allocator, block.data);  // with its owner's values
    const bool starts_at_zero =
        !is_kept && (entry.kind == LeafKind::kState || entry.kind == LeafKind::kConstant);
    if (starts_at_zero) zero(name->first);
  }
}

void Store::check_copies(const Program& program) const {
  check_codes(program);
  for (const Update& u : program.updates) {
    const Value& leaf = program.value(u.leaf);
    const std::string shadow = shadow_name(leaf.name);
    if (leaf.leaf != LeafKind::kParameter || find(shadow) == nullptr) continue;
    if (program.find_leaf(shadow) != kNoValue) continue;
    fail_usage("store", "program {} updates {}, but not its narrow copy {}", program.name,
               leaf.name, shadow);
  }
}

void Store::check_codes(const Program& program) const {
  std::set<std::string_view> updated;
  bool updates_weights = false;
  for (const Update& u : program.updates) {
    const Value& leaf = program.value(u.leaf);
    updated.insert(leaf.name);
    updates_weights = updates_weights || leaf.leaf == LeafKind::kParameter;
  }
  if (!updates_weights) return;
  for (auto at = entries_.lower_bound(kFoundPrefix);
       at != entries_.end() && at->first.starts_with(kFoundPrefix); ++at) {
    if (updated.contains(at->first)) continue;
    fail_usage("store", "program {} updates parameters, but not their codes ({})", program.name,
               at->first);
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
  forget_codes();
}

void Store::forget_codes() {
  for (auto at = entries_.lower_bound(kFoundPrefix);
       at != entries_.end() && at->first.starts_with(kFoundPrefix); ++at) {
    zero(at->first);
  }
}

void Store::copy_in(const Entry& entry, const TensorView& value) {
  if (!value.bytes.empty()) device_.copy_in(entry.data, value.bytes.data(), entry.type.bytes());
}

void Store::set_shadow(std::string_view parameter, const TensorView& value) {
  const Entry* shadow = find(shadow_name(parameter));
  if (shadow == nullptr || !device_.computes()) return;
  copy_in(*shadow, as_dtype(value, shadow->type.dtype));
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
