#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/indexed.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/pass_rules.h"

namespace tracestep {
namespace {

// The number of the first random stream of adapters' dropouts; a captured module's begin at 0.
constexpr std::int64_t kFirstStream = std::int64_t{1} << 20;

std::string_view last_name(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

// The word by which `lora` targets name a projection, and the names that its modules have.
struct Word {
  std::string_view word;
  std::vector<std::string_view> names;
};
const std::vector<Word>& words() {
  static const std::vector<Word> all{{"q", {"q_proj"}},
                                     {"k", {"k_proj"}},
                                     {"v", {"v_proj"}},
                                     {"o", {"output_proj", "o_proj"}},
                                     {"gate", {"gate_proj"}},
                                     {"up", {"w3", "up_proj"}},
                                     {"down", {"w2", "down_proj"}}};
  return all;
}

// The products to adapt, by path: their right operand is a weight that a target of `lora` names.
class Targets {
 public:
  Targets(const Program& program, const Adapters& lora) : lora_(lora) {
    for (const Node& node : program.nodes) {
      if (!node.op->product) continue;
      const Value& weight = program.value(node.inputs[1]);
      if (weight.leaf != LeafKind::kParameter || weight.type.shape.rank() != 2) continue;
      paths_.insert(component_path(weight.name));
    }
    for (const std::string& target : lora.targets) {
      std::set<std::string> found;
      std::ranges::copy_if(paths_, std::inserter(found, found.end()),
                           [&](const std::string& path) { return is_named(target, path); });
      if (found.empty()) refuse(target);
      chosen_.merge(found);
    }
  }

  bool has(const std::string& path) const { return chosen_.contains(path); }

 private:
  // True if `target` is a word for the path's last name. w1 is a gate if there is a w3, else up.
  bool is_word(std::string_view target, std::string_view path) const {
    const std::string_view name = last_name(path);
    if (name == "w1") {
      const bool is_gate = paths_.contains(std::string(path.substr(0, path.size() - 2)) + "w3");
      return target == (is_gate ? "gate" : "up") || target == (is_gate ? "gate_proj" : "up_proj");
    }
    return std::ranges::any_of(words(), [&](const Word& w) {
      const auto is = [&](std::string_view text) {
        return std::ranges::find(w.names, text) != w.names.end();
      };
      return is(name) && (target == w.word || is(target));
    });
  }

  // True if `target` means the path; "all" means every product within the layers, not the head.
  bool is_named(std::string_view target, std::string_view path) const {
    if (target == "all") return !layer_of(path).empty();
    const bool is_end = path.ends_with(target) && (path.size() == target.size() ||
                                                   path[path.size() - target.size() - 1] == '.');
    return is_end || is_word(target, path) || path_matches(target, path) ||
           is_word_within(target, path);
  }

  // True if `target` is a pattern with a projection's word (layers.0-15.*.down), and both match.
  bool is_word_within(std::string_view target, std::string_view path) const {
    const std::size_t dot = target.rfind('.');
    if (dot == target.npos || !is_word(target.substr(dot + 1), path)) return false;
    return path_matches(std::string(target.substr(0, dot)) + ".*", path);
  }

  [[noreturn]] void refuse(std::string_view target) const {
    std::set<std::string> names;
    for (const std::string& path : paths_) {
      std::string word(last_name(path));
      for (const Word& w : words()) {
        if (is_word(w.word, path)) word = w.word;
      }
      names.insert(word);
    }
    throw Error(
        ErrorCode::kUsage, "lora"_field,
        fmt::format("no product of the model has a weight called \"{}\"", target),
        fmt::format("give some of {}, all, or paths such as layers.*.{}", fmt::join(names, ", "),
                    paths_.empty() ? "" : last_name(*paths_.begin())));
  }

  const Adapters& lora_;
  std::set<std::string> paths_, chosen_;
};

// Returns, for each value, whether it is a frozen parameter: with adapters, all but lora.whole;
// else those in `parts`. Throws Error{kUsage} if a path matches none, or nothing is left to train.
std::vector<bool> frozen_leaves(const Program& program, const Adapters& lora,
                                const FrozenParts& parts) {
  std::vector<bool> out(program.values.size(), false);
  const std::vector<std::string>& paths = lora.is_on() ? lora.whole : parts.paths;
  std::set<std::string_view> unused(paths.begin(), paths.end());
  bool trains = lora.is_on();
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf != LeafKind::kParameter) continue;
    out[at(id)] = lora.is_on();
    for (const std::string& path : paths) {
      if (!path_matches(path, leaf.name)) continue;
      unused.erase(path);
      out[at(id)] = !lora.is_on();
    }
    trains = trains || !out[at(id)];
  }
  if (!unused.empty()) {
    throw Error(ErrorCode::kUsage, lora.is_on() ? "lora"_field : "freeze"_field,
                fmt::format("the model has no part called \"{}\"", *unused.begin()),
                fmt::format("give paths such as layers.0-15, or {}",
                            component_path(program.value(program.leaves.front()).name)));
  }
  if (!trains) fail_usage("freeze"_field, "all weights are frozen, and nothing is left to train");
  return out;
}

// Returns the program with frozen parameters as constants, which only Rewriter may read. A memory
// block in which only some parameters are frozen is given up: its parts may differ in dtypes.
Program with_constants(const Program& program, const std::vector<bool>& is_frozen) {
  std::map<std::string_view, std::set<bool>> of_block;
  const auto is_parameter = [&](ValueId id) {
    return program.value(id).leaf == LeafKind::kParameter;
  };
  for (const ValueId id : program.leaves) {
    if (is_parameter(id)) of_block[program.value(id).part.block].insert(is_frozen[at(id)]);
  }
  Program out = program;
  for (const ValueId id : program.leaves) {
    Value& leaf = out.values[at(id)];
    if (!is_parameter(id)) continue;
    if (of_block[program.value(id).part.block].size() > 1) leaf.part = {};
    if (is_frozen[at(id)]) leaf.leaf = LeafKind::kConstant;
  }
  return out;
}

class Adapt {
 public:
  Adapt(const Program& program, const Adapters& lora, const std::vector<bool>& is_frozen)
      : program_(program),
        leaves_(with_constants(program, is_frozen)),
        lora_(lora),
        r_(leaves_, "adapt") {
    if (lora.is_on()) targets_.emplace(program, lora);
  }

  Program run() {
    for (const Node& node : program_.nodes) {
      const std::vector<Val> y = r_.copy(node);
      if (is_target(node)) add_adapter(node, y[0]);
    }
    return r_.finish();
  }

 private:
  bool is_target(const Node& node) const {
    if (!targets_ || !node.op->product) return false;
    const Value& weight = program_.value(node.inputs[1]);
    return weight.leaf == LeafKind::kParameter && targets_->has(component_path(weight.name));
  }

  // Adds scale·B·A·x to `y`, the result of `node`. The scale multiplies A·x, which has the fewest
  // elements, and the product with B can then be added to `y` as it is made.
  void add_adapter(const Node& node, Val y) {
    const Value& weight = program_.value(node.inputs[1]);
    const std::string path = component_path(weight.name);
    Node place = node;
    place.origins = {
        Origin{path + ".lora", Phase::kForward, node.origin().file, node.origin().line}};
    const auto guard = r_.from(place);
    const bool by_rows = node.attrs.flag("transpose_b"), is_turned = node.attrs.flag("transpose_a");
    const Shape& w = weight.type.shape;
    const std::int64_t in = by_rows ? w[1] : w[0], out = by_rows ? w[0] : w[1];
    const Val a =
        tensor(path, kAdapterA, {weight.type.dtype, {lora_.rank, in}}, beside(weight, in));
    const Val b = tensor(path, kAdapterB, {weight.type.dtype, {out, lora_.rank}});
    const Val x = dropped(r_.map(node.inputs[0]));
    const Val narrow = ops::matmul(x, a, {.transpose_a = is_turned, .transpose_b = true});
    const Val scaled = lora_.scale() == 1.0 ? narrow : ops::affine(narrow, lora_.scale());
    r_.replace(node.outputs[0], ops::add(y, ops::matmul(scaled, b, {.transpose_b = true})));
  }

  // Returns a parameter of an adapter; all products that read one weight get the same parameter.
  Val tensor(const std::string& path, std::string_view which, Type type, BlockPart part = {}) {
    const std::string name = path + std::string(which);
    const auto found = made_.find(name);
    if (found != made_.end()) return found->second;
    return made_.emplace(name, r_.builder().parameter(name, std::move(type), std::move(part)))
        .first->second;
  }

  // Returns where the adapter matrix A of `weight` lies: if all weights in its memory block have
  // one, these lie side by side too, so that their products with one input can be merged; else {}.
  BlockPart beside(const Value& weight, std::int64_t in) const {
    if (weight.part.block.empty()) return {};
    std::int64_t before = 0, all = 0;
    for (const ValueId id : program_.leaves) {
      const Value& other = program_.value(id);
      if (other.part.block != weight.part.block) continue;
      if (!targets_->has(component_path(other.name))) return {};
      before += other.part.offset < weight.part.offset ? 1 : 0;
      ++all;
    }
    const std::int64_t count = lora_.rank * in;
    return {component_path(weight.part.block) + std::string(kAdapterA), before * count,
            all * count};
  }

  Val dropped(Val x) {
    if (lora_.dropout == 0.0) return x;
    if (!batch_) {
      const ValueId own = program_.find_leaf(kAdapterBatch);
      batch_ =
          own == kNoValue ? r_.builder().input(kAdapterBatch, {DType::kI64, {1}}) : r_.map(own);
    }
    return r_.builder().call1("dropout", {x, batch_},
                              {{"rate", lora_.dropout}, {"stream", drops_++}});
  }

  const Program& program_;
  const Program leaves_;
  const Adapters& lora_;
  std::optional<Targets> targets_;
  Rewriter r_;
  std::map<std::string, Val> made_;
  Val batch_;
  std::int64_t drops_ = kFirstStream;
};

// Stores frozen float32 weights in a low dtype if all readers allow it: casts of the whole weight
// to that dtype, and look-ups of rows of a table, which are widened after they have been read.
class NarrowFrozen {
 public:
  NarrowFrozen(const Program& program, DType low, const std::set<std::string>& kept)
      : program_(program), low_(low), is_narrow_(program.values.size(), false) {
    std::map<std::string_view, bool> whole_block;
    for (const ValueId id : program.leaves) {
      const Value& leaf = program.value(id);
      is_narrow_[at(id)] = leaf.leaf == LeafKind::kConstant && leaf.type.dtype == DType::kF32 &&
                           !kept.contains(leaf.name);
    }
    for (const Node& node : program.nodes) {
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const bool is_read_so = casts(node) || (i == 0 && looks_up(node));
        if (!is_read_so) is_narrow_[at(node.inputs[i])] = false;
      }
    }
    for (const Output& o : program.outputs) is_narrow_[at(o.value)] = false;
    for (const ValueId id : program.leaves) {
      const auto [found, is_new] =
          whole_block.emplace(program.value(id).part.block, is_narrow_[at(id)]);
      if (!is_new) found->second = found->second && is_narrow_[at(id)];
    }
    for (const ValueId id : program.leaves) {
      const std::string_view block = program.value(id).part.block;
      if (!block.empty() && !whole_block[block]) is_narrow_[at(id)] = false;
    }
  }

  Program run() {
    Program leaves = program_;
    for (const ValueId id : program_.leaves) {
      if (is_narrow_[at(id)]) leaves.values[at(id)].type.dtype = low_;
    }
    Rewriter r(leaves, "narrow_frozen");
    for (const Node& node : program_.nodes) {
      const bool is_of_frozen = !node.inputs.empty() && is_narrow_[at(node.inputs[0])];
      if (is_of_frozen && casts(node)) {
        r.replace(node, {r.map(node.inputs[0])});
        continue;
      }
      if (!is_of_frozen) {
        r.copy(node);
        continue;
      }
      const auto guard = r.from(node);  // the rows have another type than those of the copied node
      const Val rows = r.builder().call(*node.op, r.inputs(node), node.attrs).front();
      r.replace(node, {ops::cast(rows, DType::kF32)});
    }
    return r.finish();
  }

 private:
  bool casts(const Node& node) const {
    return node.op->only_converts && program_.value(node.outputs[0]).role == Role::kWeightCast &&
           program_.type(node.outputs[0]).dtype == low_;
  }
  static bool looks_up(const Node& node) { return node.op->name == "gather"; }

  const Program& program_;
  const DType low_;
  std::vector<bool> is_narrow_;
};

}  // namespace

Program adapt(const Program& program, const Adapters& lora, const FrozenParts& parts) {
  const bool has_weights = std::ranges::any_of(
      program.leaves, [&](ValueId id) { return program.value(id).leaf == LeafKind::kParameter; });
  if (!has_weights) return program;
  return Adapt(program, lora, frozen_leaves(program, lora, parts)).run();
}

Program narrow_frozen(const Program& program, DType low, const std::set<std::string>& kept) {
  return NarrowFrozen(program, low, kept).run();
}

// Adapts the model as the run says; adapters have no dropout in inference, which trains nothing.
Program adapt(const Program& p, const PassOptions& o) {
  Adapters lora = o.run.lora;
  if (o.run.mode == Mode::kInference) lora.dropout = 0.0;
  return adapt(p, lora, o.run.frozen);
}

bool narrows_frozen(const PassOptions& o) {
  return o.adapts() && o.casts();
}

Program narrow_frozen(const Program& p, const PassOptions& o) {
  return narrow_frozen(p, *o.run.precision.autocast, o.own_constants());
}

}  // namespace tracestep
