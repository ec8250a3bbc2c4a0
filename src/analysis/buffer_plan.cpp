#include "analysis/buffer_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/assembly.h"
#include "analysis/places_in_copies.h"
#include "analysis/saved.h"
#include "analysis/view_strides.h"
#include "base/indexed.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

class Planner {
 public:
  explicit Planner(const Program& program)
      : program_(program),
        end_(static_cast<NodeId>(program.nodes.size())),
        last_read_(program.values.size(), kNoNode),
        forced_(program.values.size(), kNoValue) {
    out_.buffer_of.assign(program.values.size(), -1);
    out_.allocated_at.resize(program.nodes.size());
    out_.freed_after.resize(program.nodes.size());
    out_.runs.assign(program.nodes.size(), true);
  }

  BufferPlan run() {
    for (const AssembledPart& part : assembled_parts(program_)) {
      out_.assembled.emplace(part.value, part.place);
      parts_[part.place.base].push_back(part.value);
    }
    find_last_reads();
    for (const Update& u : program_.updates) force_in_place(u);
    in_copies_ = places_in_copies(program_);
    for (ValueId id : program_.leaves) add_buffer(id, kNoNode);
    for (NodeId id = 0; id < end_; ++id) place(id);
    out_.turns = turns_of(program_, out_);
    lifetimes();
    for (const Saved& saved : saved_for_backward(program_)) saved_.insert(saved.value);
    for (std::size_t b = 0; b < out_.buffers.size(); ++b) categorize(b);
    return std::move(out_);
  }

 private:
  ValueId base(ValueId id) const { return program_.value(id).layout.base; }

  // Notes each base value's last reader. A view reads nothing itself; its readers read the base.
  void find_last_reads() {
    for (NodeId id = 0; id < end_; ++id) {
      const Node& node = program_.node(id);
      if (makes_views(program_, node)) continue;
      for (ValueId input : node.inputs) {
        last_read_[at(base(input))] = id;
        for (ValueId leaf : leaves_of(program_, input)) last_read_[at(leaf)] = id;
      }
    }
    for (const Output& o : program_.outputs) last_read_[at(base(o.value))] = end_;
    for (const Update& u : program_.updates) last_read_[at(base(u.value))] = end_;
  }

  // Makes the update write over its leaf, through donations of buffers; false: it may not.
  bool force_in_place(const Update& u) {
    std::vector<std::pair<ValueId, ValueId>> chain;  // output, input
    if (u.value == u.leaf) return false;
    if (!walk_back(u.value, u.leaf, chain)) {
      if (!may_write_over(u)) return false;
      chain.emplace_back(u.value, u.leaf);
    }
    for (const auto& [output, input] : chain) forced_[at(output)] = input;
    return true;
  }

  // True if the new value may overwrite the leaf: a fused node makes it after all readers of the
  // old value, or is itself their last one and reads the old value element by element.
  bool may_write_over(const Update& u) const {
    const Value &v = program_.value(u.value), &leaf = program_.value(u.leaf);
    if (v.producer == kNoNode || v.layout.base != u.value || v.type != leaf.type) return false;
    const Node& node = program_.node(v.producer);
    if (node.op->kernel_class != KernelClass::kFused || !node.attrs.flag("in_place")) return false;
    const NodeId last = last_read_[at(u.leaf)];
    if (last != v.producer) return last < v.producer;
    const Program& body = node.attrs.region("body");
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const std::vector<ValueId> leaves = leaves_of(program_, node.inputs[i]);
      const bool reads = std::ranges::find(leaves, u.leaf) != leaves.end();
      if (reads && (node.inputs[i] != u.leaf || !is_read_by_element(body, body.leaves[i])))
        return false;
    }
    return true;
  }

  // True if all that a fused body computes from `operand` is elementwise, of the same shape.
  static bool is_read_by_element(const Program& body, ValueId operand) {
    std::set<ValueId> depending{operand};
    return std::ranges::all_of(body.nodes, [&](const Node& node) {
      const bool depends =
          std::ranges::any_of(node.inputs, [&](ValueId id) { return depending.contains(id); });
      if (!depends) return true;
      depending.insert(node.outputs.begin(), node.outputs.end());
      return node.op->fusion == Fusion::kElementwise && !node.op->is_view() &&
             std::ranges::all_of(node.outputs, [&](ValueId id) {
               return body.type(id).shape == body.type(operand).shape;
             });
    });
  }

  bool walk_back(ValueId value, ValueId leaf, std::vector<std::pair<ValueId, ValueId>>& chain) {
    const Value& v = program_.value(value);
    if (v.producer == kNoNode || v.layout.base != value) return false;
    const Node& node = program_.node(v.producer);
    for (const Donation& d : donations_of(node)) {
      if (d.output != v.output_index || at(d.input) >= node.inputs.size()) continue;
      const ValueId input = node.inputs[at(d.input)];
      if (!may_donate(v.producer, input, value)) continue;
      chain.emplace_back(value, base(input));
      if (base(input) == leaf || walk_back(base(input), leaf, chain)) return true;
      chain.pop_back();
    }
    return false;
  }

  // True if `output` may take the buffer of `input`: node `id` is its last reader and reads all of
  // it in order; through several operands only if it reads all of them before it writes.
  bool may_donate(NodeId id, ValueId input, ValueId output) const {
    const ValueId owner = base(input);
    if (!covers_base(program_, input) || last_read_[at(owner)] != id) return false;
    if (program_.type(owner).bytes() != program_.type(output).bytes()) return false;
    const Node& node = program_.node(id);
    const auto reads_owner = [&](ValueId other) { return base(other) == owner; };
    const bool reads_first = node.op->fusion != Fusion::kNone;
    if (!reads_first && std::ranges::count_if(node.inputs, reads_owner) > 1) return false;
    return std::ranges::all_of(node.inputs, [&](ValueId other) {
      return !reads_owner(other) || covers_base(program_, other);
    });
  }

  void add_buffer(ValueId owner, NodeId first) {
    out_.buffer_of[at(owner)] = static_cast<int>(out_.buffers.size());
    if (first != kNoNode) {
      out_.allocated_at[at(first)].push_back(static_cast<int>(out_.buffers.size()));
    }
    const std::int64_t bytes = program_.type(owner).bytes();
    const bool on_host = program_.value(owner).memory == Memory::kHost;
    out_.buffers.push_back({.owner = owner,
                            .bytes = on_host ? 0 : bytes,
                            .host_bytes = on_host ? bytes : 0,
                            .first = first,
                            .last = first});
  }

  void place(NodeId id) {
    const Node& node = program_.node(id);
    if (node.op->is_assembly()) {
      out_.runs[at(id)] = false;
      return;
    }
    if (makes_views(program_, node)) {
      out_.runs[at(id)] = false;
      for (ValueId v : node.outputs) out_.buffer_of[at(v)] = out_.buffer_of[at(base(v))];
      return;
    }
    const bool dead = std::all_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId v) { return last_read_[at(v)] == kNoNode; });
    std::set<int> taken;
    for (ValueId output : node.outputs) {
      // A node without readers still runs, so its results need a buffer.
      if (last_read_[at(output)] == kNoNode && !dead) continue;
      if (const auto part = out_.assembled.find(output); part != out_.assembled.end()) {
        place_part(id, output, part->second.base);
        continue;
      }
      const auto copy = in_copies_.find(output);
      const int donated = copy != in_copies_.end() && forced_[at(output)] == kNoValue
                              ? out_.buffer_of[at(copy->second)]
                              : donor(id, output, taken);
      if (donated >= 0) {
        out_.buffer_of[at(output)] = donated;
        taken.insert(donated);
      } else {
        add_buffer(output, id);
      }
    }
  }

  // Places a part in the buffer of its assembly, which exists from its first part on.
  void place_part(NodeId id, ValueId output, ValueId assembly) {
    int& buffer = out_.buffer_of[at(assembly)];
    if (buffer < 0) buffer = donor_of_assembly(id, assembly);
    if (buffer < 0) add_buffer(assembly, id);
    out_.buffer_of[at(output)] = buffer;
  }

  // Returns the buffer that the assembly takes over from inputs of node `id`, or -1.
  int donor_of_assembly(NodeId id, ValueId assembly) const {
    ValueId owner = kNoValue;
    std::ptrdiff_t donated = 0;
    for (ValueId part : parts_.at(assembly)) {
      const ValueId input = donated_in_place(id, part);
      if (input == kNoValue || (owner != kNoValue && base(input) != owner)) return -1;
      owner = base(input);
      ++donated;
    }
    const auto reads_owner = [&](ValueId input) { return base(input) == owner; };
    if (std::ranges::count_if(program_.node(id).inputs, reads_owner) != donated) return -1;
    const int buffer = out_.buffer_of[at(owner)];
    const bool fits = program_.type(owner).bytes() == program_.type(assembly).bytes() &&
                      last_read_[at(owner)] == id &&
                      program_.value(owner).leaf == LeafKind::kNone && !in_leaf(buffer);
    return fits ? buffer : -1;
  }

  // Returns the input of `id` that lies where `part` will and may be overwritten, or kNoValue.
  ValueId donated_in_place(NodeId id, ValueId part) const {
    const Value& result = program_.value(part);
    if (result.producer != id) return kNoValue;
    const Node& node = program_.node(id);
    const Layout& place = out_.assembled.at(part);
    for (const Donation& d : donations_of(node)) {
      if (d.output != result.output_index || at(d.input) >= node.inputs.size()) continue;
      const Value& input = program_.value(node.inputs[at(d.input)]);
      if (input.type == result.type && input.layout.offset == place.offset &&
          input.layout.strides == place.strides) {
        return node.inputs[at(d.input)];
      }
    }
    return kNoValue;
  }

  // Returns the buffer, not in `taken`, that `output` takes over from an input of node `id`, or -1.
  int donor(NodeId id, ValueId output, const std::set<int>& taken) const {
    if (forced_[at(output)] != kNoValue) return out_.buffer_of[at(forced_[at(output)])];
    const Node& node = program_.node(id);
    for (const Donation& d : donations_of(node)) {
      if (d.output != program_.value(output).output_index) continue;
      if (at(d.input) >= node.inputs.size()) continue;
      const ValueId input = node.inputs[at(d.input)];
      const ValueId owner = base(input);
      const int buffer = out_.buffer_of[at(owner)];
      if (program_.value(owner).leaf != LeafKind::kNone || in_leaf(buffer)) continue;
      if (taken.contains(buffer) || !may_donate(id, input, output)) continue;
      if (promised_elsewhere(node, output, owner)) continue;
      return buffer;
    }
    return -1;
  }

  bool in_leaf(int buffer) const { return out_.buffers[at(buffer)].first == kNoNode; }

  // True if another output of the node must have the buffer of `owner`, to update a leaf in place.
  bool promised_elsewhere(const Node& node, ValueId output, ValueId owner) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId other) {
      return other != output && forced_[at(other)] == owner;
    });
  }

  void lifetimes() {
    for (std::size_t v = 0; v < program_.values.size(); ++v) {
      const int b = out_.buffer_of[v];
      if (b < 0) continue;
      Buffer& buffer = out_.buffers[at(b)];
      buffer.last = std::max(buffer.last, last_read_[v]);
    }
    for (NodeId id = 0; id < end_; ++id) keep_until(id, out_.turns[at(id)].until);
    for (std::size_t b = 0; b < out_.buffers.size(); ++b) {
      Buffer& buffer = out_.buffers[b];
      if (buffer.first == kNoNode) {
        buffer.last = end_;
      } else if (buffer.last < end_) {
        out_.freed_after[at(buffer.last)].push_back(static_cast<int>(b));
      }
    }
    for (std::size_t v = 0; v < program_.values.size(); ++v) {
      if (out_.buffer_of[v] >= 0) members_[out_.buffer_of[v]].push_back(static_cast<ValueId>(v));
    }
  }

  // Keeps the buffers that node `id` uses until `until` has run.
  void keep_until(NodeId id, NodeId until) {
    if (!out_.runs[at(id)] || until <= id) return;
    const Node& node = program_.node(id);
    for (const auto* values : {&node.inputs, &node.outputs}) {
      for (ValueId v : *values) {
        const int b = out_.buffer_of[at(v)];
        if (b >= 0) out_.buffers[at(b)].last = std::max(out_.buffers[at(b)].last, until);
      }
    }
  }

  Category category(ValueId id) const {
    const Value& v = program_.value(id);
    switch (v.role) {
      case Role::kGradient: return Category::kGradient;
      case Role::kOptimizerState: return Category::kOptimizerState;
      case Role::kWeightCast: return Category::kWeightCast;
      case Role::kCache: return Category::kActivation;
      case Role::kNone: break;
    }
    if (v.leaf == LeafKind::kParameter) return Category::kParameter;
    if (v.leaf == LeafKind::kInput) return Category::kInput;
    if (v.leaf == LeafKind::kConstant) return Category::kConstant;
    if (v.leaf == LeafKind::kState) return Category::kOptimizerState;
    const Node& node = program_.node(v.producer);
    if (node.op->kernel_class == KernelClass::kCollective) return Category::kCollective;
    return saved_.contains(v.layout.base) ? Category::kActivation : Category::kTemporary;
  }

  // Sets a buffer's category: of several values that share it, the one that matters most.
  void categorize(std::size_t b) {
    Buffer& buffer = out_.buffers[b];
    buffer.category = category(buffer.owner);
    if (buffer.category != Category::kTemporary) return;
    for (ValueId id : members_[static_cast<int>(b)]) {
      if (is_view(program_, id)) continue;
      const Category c = category(id);
      if (c != Category::kTemporary) buffer.category = c;
      if (c == Category::kGradient) return;
    }
  }

  const Program& program_;
  NodeId end_;
  std::vector<NodeId> last_read_;                  // by base value
  std::vector<ValueId> forced_;                    // by value: whose buffer it must have
  std::map<ValueId, ValueId> in_copies_;           // by value: the leaf that holds it
  std::set<ValueId> saved_;                        // by base value
  std::map<ValueId, std::vector<ValueId>> parts_;  // by assembly
  std::map<int, std::vector<ValueId>> members_;
  BufferPlan out_;
};

}  // namespace

std::optional<Layout> BufferPlan::layout_of(const Program& program, ValueId id) const {
  const Value& v = program.value(id);
  const auto part = assembled.find(v.layout.base);
  if (part == assembled.end()) return v.layout;
  if (id == v.layout.base) return part->second;
  const Value& whole = program.value(v.layout.base);
  const auto strides = carry_strides({whole.type.shape, whole.layout.strides}, part->second.strides,
                                     {v.type.shape, v.layout.strides});
  if (!strides || v.layout.offset != 0) return std::nullopt;
  return Layout{part->second.base, part->second.offset, *strides};
}

BufferPlan plan_buffers(const Program& program) {
  return Planner(program).run();
}

std::vector<Update> updates_out_of_place(const Program& program, const BufferPlan& buffer_plan) {
  std::vector<Update> out;
  for (const Update& u : program.updates) {
    const bool whole = u.value == u.leaf || covers_base(program, u.value);
    if (!whole || buffer_plan.buffer_of[at(u.value)] != buffer_plan.buffer_of[at(u.leaf)]) {
      out.push_back(u);
    }
  }
  return out;
}

}  // namespace tracestep
