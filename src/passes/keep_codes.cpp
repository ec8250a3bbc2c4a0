#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "analysis/readers.h"
#include "base/indexed.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/memory_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

// The epoch of refresh_codes; not 0, since it never runs again in backward.
constexpr int kOnce = 1;

// A parameter whose narrow copy nothing but a quantization reads.
struct Part {
  ValueId parameter = kNoValue, shadow = kNoValue;
  const Node *update = nullptr, *cast = nullptr;  // adamw, and that of its first result
};

struct Weight {
  const Node* quantize = nullptr;
  std::vector<Part> parts;  // one below the other
};

class KeepCodes {
 public:
  explicit KeepCodes(const Program& program) : program_(program), readers_(program) {
    for (const Update& u : program.updates) updates_[u.leaf] = u.value;
    for (const Node& node : program.nodes) {
      if (node.op->name != "quantize_delayed") continue;
      auto weight = weight_of(node);
      if (weight) groups_[weight->parts.size()].push_back(std::move(*weight));
    }
  }

  Program run() const {
    if (groups_.empty()) return program_;
    const Program rest = without_shadows();
    Rewriter r(rest, "keep_codes");
    std::map<std::size_t, Group> made;
    for (const Node& node : program_.nodes) {
      if (const auto* first = first_of(node))
        made[first->front().parts.size()] = refresh(r, *first);
      if (!replaced_.contains(&node)) r.copy(node);
    }
    for (const auto& [parts, weights] : groups_) update(r, weights, made.at(parts));
    return remove_dead_nodes(r.finish());
  }

 private:
  // For all weights with one number of parts: their states, and the results of refresh_codes.
  struct Group {
    Val found;
    std::vector<Val> states;   // for each weight its codes, and these transposed
    std::vector<Val> results;  // of refresh_codes
  };
  static constexpr std::size_t kResults = 4;  // of each weight

  const Node* maker_of(ValueId id) const {
    const NodeId maker = program_.value(id).producer;
    return maker == kNoNode ? nullptr : &program_.node(maker);
  }
  bool is_read_by(ValueId id, const Node& reader) const {
    const NodeId only = readers_.only(id);
    return only != kNoNode && &program_.node(only) == &reader;
  }

  // Returns the weight whose narrow copy `quantize` alone reads, or nullopt: no codes are kept.
  std::optional<Weight> weight_of(const Node& quantize) {
    const ValueId x = quantize.inputs[0];
    const Node* block = maker_of(x);
    if (!is_read_by(x, quantize)) return std::nullopt;
    if (block != nullptr && block->op->name != "block") return std::nullopt;
    Weight out{&quantize, {}};
    for (ValueId id : block != nullptr ? block->inputs : std::vector{x}) {
      const auto part = part_of(id, block != nullptr ? *block : quantize);
      if (!part) return std::nullopt;
      out.parts.push_back(*part);
    }
    if (like_ == nullptr) like_ = out.parts.front().update;
    replaced_.insert(&quantize);
    if (block != nullptr) replaced_.insert(block);
    for (const Part& part : out.parts) replaced_.insert({part.update, part.cast});
    return out;
  }

  std::optional<Part> part_of(ValueId shadow, const Node& reader) const {
    const Value& leaf = program_.value(shadow);
    const bool is_copy = leaf.leaf == LeafKind::kState && leaf.name.starts_with(kShadowPrefix);
    if (!is_copy || !is_read_by(shadow, reader) || !updates_.contains(shadow)) return std::nullopt;
    Part out{program_.find_leaf(leaf.name.substr(kShadowPrefix.size())), shadow};
    out.cast = maker_of(updates_.at(shadow));
    if (out.parameter == kNoValue || out.cast == nullptr || !out.cast->op->only_converts) {
      return std::nullopt;
    }
    out.update = maker_of(out.cast->inputs[0]);
    return is_plain_update(out) ? std::optional(out) : std::nullopt;
  }

  // True if nothing but the leaves and the narrow copy takes the update's results, and its rates
  // and dtypes are those of all other updates.
  bool is_plain_update(const Part& part) const {
    const Node* update = part.update;
    if (update == nullptr || update->op->name != "adamw") return false;
    if (!readers_.nodes[at(part.cast->outputs[0])].empty()) return false;
    const auto& p = update->outputs;
    if (part.cast->inputs[0] != p[0] || readers_.nodes[at(p[0])].size() != 1) return false;
    if (!readers_.nodes[at(p[1])].empty() || !readers_.nodes[at(p[2])].empty()) return false;
    const auto updated = updates_.find(part.parameter);
    if (updated == updates_.end() || updated->second != p[0]) return false;
    if (like_ == nullptr) return true;
    return update->attrs.entries() == like_->attrs.entries() &&
           std::ranges::equal(std::span(update->inputs).subspan(kTensors),
                              std::span(like_->inputs).subspan(kTensors)) &&
           std::ranges::equal(
               std::span(update->inputs).first(kTensors), std::span(like_->inputs).first(kTensors),
               {}, [&](ValueId id) { return program_.type(id).dtype; },
               [&](ValueId id) { return program_.type(id).dtype; });
  }

  // Returns the program without the narrow copies that codes replace.
  Program without_shadows() const {
    std::set<ValueId> gone;
    for (const auto& [parts, weights] : groups_) {
      for (const Weight& weight : weights) {
        for (const Part& part : weight.parts) gone.insert(part.shadow);
      }
    }
    Program out = program_;
    std::erase_if(out.leaves, [&](ValueId id) { return gone.contains(id); });
    std::erase_if(out.updates, [&](const Update& u) { return gone.contains(u.leaf); });
    return out;
  }

  // Returns the group of weights the first of which this node quantizes; nullptr: there is none.
  const std::vector<Weight>* first_of(const Node& node) const {
    for (const auto& [parts, weights] : groups_) {
      if (weights.front().quantize == &node) return &weights;
    }
    return nullptr;
  }

  Attrs code_attrs(const std::vector<Weight>& weights) const {
    const Weight& first = weights.front();
    Attrs out = first.quantize->attrs;
    out.set("through", program_.type(first.parts.front().shadow).dtype);
    return out;
  }

  Group refresh(Rewriter& r, const std::vector<Weight>& weights) const {
    Builder& b = r.builder();
    std::vector<const Node*> nodes;
    for (const Weight& weight : weights) nodes.push_back(weight.quantize);
    const auto guard = b.like(nodes);
    b.set_made_by("keep_codes");
    const auto count = static_cast<std::int64_t>(weights.size());
    Group out;
    out.found =
        b.leaf(LeafKind::kState, fmt::format("{}{}", kFoundPrefix, weights.front().parts.size()),
               {DType::kF32, {count, 2}}, Role::kWeightCast);
    std::vector<Val> operands{out.found};
    for (const Weight& weight : weights) add_operands(r, weight, operands, out);
    b.set_epoch(kOnce);
    out.results = b.call(find_op("refresh_codes"), operands, code_attrs(weights));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto first = out.results.begin() + static_cast<std::ptrdiff_t>(i * kResults);
      r.replace(*weights[i].quantize, {first, first + kResults});
    }
    return out;
  }

  // Adds operands of refresh_codes: the weight, the magnitude of the step before, and the states.
  void add_operands(Rewriter& r, const Weight& weight, std::vector<Val>& operands,
                    Group& out) const {
    Builder& b = r.builder();
    std::vector<Val> parts;
    for (const Part& part : weight.parts) parts.push_back(r.map(part.parameter));
    operands.push_back(parts.size() == 1 ? parts[0] : b.call1("block", parts));
    const Layout& last = program_.value(weight.quantize->inputs[1]).layout;
    operands.push_back(ops::slice(r.map(last.base), 0, last.offset, last.offset + 1));
    const Value& first = program_.value(weight.parts.front().parameter);
    const std::string name =
        std::string(kCodesPrefix) + (parts.size() == 1 ? first.name : first.part.block);
    for (std::size_t i : {0, 1}) {
      const Type& type = program_.type(weight.quantize->outputs[i]);
      out.states.push_back(
          b.leaf(LeafKind::kState, i == 0 ? name : name + ".transposed", type, Role::kWeightCast));
      operands.push_back(out.states.back());
    }
  }

  void update(Rewriter& r, const std::vector<Weight>& weights, const Group& group) const {
    Builder& b = r.builder();
    std::vector<const Node*> nodes;
    for (const Weight& weight : weights) {
      for (const Part& part : weight.parts) nodes.push_back(part.update);
    }
    const auto guard = b.like(nodes);
    b.set_made_by("keep_codes");
    std::vector<Val> operands = factors(r);
    operands.push_back(group.found);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (const Part& part : weights[i].parts) {
        for (std::size_t k = 0; k < kTensors; ++k) {
          operands.push_back(r.map(part.update->inputs[k]));
        }
      }
      operands.push_back(group.results[i * kResults]);
      operands.push_back(group.results[i * kResults + 1]);
      operands.push_back(largest_of(r, weights[i]));
    }
    const std::vector<Val> results =
        b.call(find_op("adamw_codes"), operands, update_attrs(weights));
    take(r, weights, group, results);
  }

  // Returns the weight's largest magnitude in this step as a slice of the assembly of all of them:
  // the value itself then has one reader, and can be written into the assembly in place.
  Val largest_of(const Rewriter& r, const Weight& weight) const {
    const Layout& last = program_.value(weight.quantize->inputs[1]).layout;
    return ops::slice(r.map(updates_.at(last.base)), 0, last.offset, last.offset + 1);
  }

  // Returns the operands that all updates share: lr, step_size, and the optional ones.
  std::vector<Val> factors(const Rewriter& r) const {
    std::vector<Val> out;
    for (std::size_t i = kTensors; i < like_->inputs.size(); ++i) {
      out.push_back(r.map(like_->inputs[i]));
    }
    return out;
  }

  Attrs update_attrs(const std::vector<Weight>& weights) const {
    Attrs out = code_attrs(weights);
    for (const char* name : {"beta1", "beta2", "eps", "weight_decay"}) {
      out.set(name, *like_->attrs.find(name));
    }
    const std::size_t optional = like_->inputs.size() - kTensors - 2;
    out.set("scaled", optional > 0);
    out.set("guarded", optional > 1);
    out.set("counted", optional > 2);
    out.set("parts", static_cast<std::int64_t>(weights.front().parts.size()));
    return out;
  }

  // Makes the update's results the new values of the leaves.
  void take(Rewriter& r, const std::vector<Weight>& weights, const Group& group,
            const std::vector<Val>& results) const {
    auto next = results.begin();
    r.builder().update(group.found, *next++);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (const Part& part : weights[i].parts) {
        r.replace(*part.update, {next[0], next[1], next[2]});
        next += 3;
      }
      r.builder().update(group.states[2 * i], *next++);
      r.builder().update(group.states[2 * i + 1], *next++);
    }
  }

  static constexpr std::size_t kTensors = 4;  // p, grad, m, v

  const Program& program_;
  const Readers readers_;
  std::map<ValueId, ValueId> updates_;                 // by leaf
  std::map<std::size_t, std::vector<Weight>> groups_;  // by their number of parts
  std::set<const Node*> replaced_;
  const Node* like_ = nullptr;  // all updates have its rates
};

}  // namespace

Program keep_codes(const Program& program) {
  return KeepCodes(program).run();
}

// True if codes are kept, for which a rank must hold whole weights and states on its device.
bool keeps_codes(const PassOptions& o) {
  return has_arena(o.run.executor) && o.run.precision.float8 &&
         o.run.fp8_scaling == Float8Scaling::kDelayed && o.updates_at_end() &&
         o.run.parallel.updates_whole_tensors() && !offloads(o) &&
         o.has_kernel(find_op("adamw_codes")) && o.has_kernel(find_op("refresh_codes"));
}

}  // namespace tracestep
