// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost" (groups); nested
// halving is the recursive form of its section 4.2.
#include "passes/recompute.h"

#include <algorithm>
#include <map>

#include "base/indexed.h"
#include "base/suggest.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"
#include "passes/memory_passes.h"

namespace tracestep {
namespace {

using Kind = Recomputation::Kind;

constexpr Phase kRecomputePhase = Phase::kRecompute;
constexpr int kOutside = kOutsideParts, kShared = kConstantPart;

bool is_forward(const Node& node) {
  return node.origin().phase == Phase::kForward && node.epoch == 0;
}

// Returns the beginning of `path` that the pattern names: "layers.3" for "layers.*"; "": none.
std::string_view matched(std::string_view pattern, std::string_view path) {
  std::size_t p = 0, end = 0;
  while (true) {
    const std::size_t pattern_end = std::min(pattern.find('.', p), pattern.size());
    const std::size_t path_end = std::min(path.find('.', end), path.size());
    const std::string_view wanted = pattern.substr(p, pattern_end - p);
    if (wanted != "*" && wanted != path.substr(end, path_end - end)) return {};
    if (pattern_end == pattern.size()) return path.substr(0, path_end);
    if (path_end == path.size()) return {};
    p = pattern_end + 1;
    end = path_end + 1;
  }
}

// Matches like matched(), but "layers.*" at the start of a pattern stands for every block,
// whatever a user's module calls it: "layers.*.mlp" finds "model.h.3.mlp" in "model.h.3.mlp.act".
std::string_view matched_block(std::string_view pattern, std::string_view path) {
  const std::string_view block = layer_of(path);
  if (pattern == kBlocks) return block;
  const bool is_of_block = pattern.starts_with(kBlocks) && pattern[kBlocks.size()] == '.';
  if (!is_of_block) return matched(pattern, path);
  if (block.empty() || block == path) return {};
  const std::size_t inside = block.size() + 1;
  const std::string_view found = matched(pattern.substr(kBlocks.size() + 1), path.substr(inside));
  return found.empty() ? found : path.substr(0, inside + found.size());
}

std::string_view matched(const std::vector<std::string>& patterns, std::string_view path) {
  for (const std::string& pattern : patterns) {
    if (const std::string_view found = matched_block(pattern, path); !found.empty()) return found;
  }
  return {};
}

void check_paths(const Program& program, const Recomputation& choice) {
  for (const std::string& pattern : choice.paths) {
    const bool any = std::ranges::any_of(program.nodes, [&](const Node& node) {
      return is_forward(node) && !matched_block(pattern, node.origin().path).empty();
    });
    if (any || pattern == kBlocks) continue;
    std::vector<std::string> paths;
    for (const Node& node : program.nodes) paths.push_back(node.origin().path);
    const auto close = closest(pattern, paths);
    throw Error(ErrorCode::kUsage, "recompute"_field,
                fmt::format("the model has no part '{}'{}", pattern,
                            close ? fmt::format("; did you mean '{}'?", *close) : ""),
                "give none, blocks, nested, every=N, budget=SIZE, or paths, which tracestep show "
                "prints after @");
  }
}

// Base of all ways to recompute: copies the program, and lets backward nodes read what find()
// returns for their operands.
class Recomputer {
 public:
  explicit Recomputer(const Program& program)
      : program_(program), r_(program, "recompute"), kept_(program.values.size(), true) {}
  virtual ~Recomputer() = default;
  Recomputer(const Recomputer&) = delete;
  Recomputer& operator=(const Recomputer&) = delete;

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      const bool replaces = node.origin().phase == Phase::kBackward &&
                            std::ranges::any_of(node.inputs, [&](ValueId v) { return drops(v); });
      if (!replaces) {
        r_.copy(node);
        continue;
      }
      start(static_cast<NodeId>(i));
      r_.copy(node, find_all(node.inputs));
    }
    return r_.finish();
  }

 protected:
  using Values = std::map<ValueId, Val>;

  // Notes a node of backward, before its operands are looked up.
  virtual void start(NodeId reader) = 0;
  // Returns where the copy of a value is stored; nullptr: it has none yet.
  virtual const Val* lookup(ValueId id) const = 0;
  virtual void store(ValueId id, Val copy) = 0;
  virtual int epoch_of(NodeId node) const = 0;

  ValueId base(ValueId id) const { return program_.value(id).layout.base; }
  // True if a forward node made `id`, and it is not kept for backward.
  bool drops(ValueId id) const { return !kept_[at(base(id))]; }
  void drop(ValueId base) { kept_[at(base)] = false; }
  void keep(ValueId base) { kept_[at(base)] = true; }

  // Returns the value itself where it is kept, else its copy, which is made now if there is none.
  Val find(ValueId id) {
    if (!drops(id)) return r_.map(id);
    if (const Val* copy = lookup(id)) return *copy;
    const NodeId maker = program_.value(id).producer;
    const Node& node = program_.node(maker);
    const std::vector<Val> inputs = find_all(node.inputs);
    const auto guard = r_.from(node, &kRecomputePhase);
    r_.builder().set_epoch(epoch_of(maker));
    const std::vector<Val> results = r_.builder().call(*node.op, inputs, node.attrs);
    for (std::size_t i = 0; i < results.size(); ++i) {
      r_.builder().set_role(results[i], program_.value(node.outputs[i]).role);
      store(node.outputs[i], results[i]);
    }
    return results[at(program_.value(id).output_index)];
  }

  const Program& program_;

 private:
  std::vector<Val> find_all(const std::vector<ValueId>& ids) {
    std::vector<Val> out;
    out.reserve(ids.size());
    for (ValueId id : ids) out.push_back(find(id));
    return out;
  }

  Rewriter r_;
  std::vector<bool> kept_;  // by base value
};

// Recomputes single nodes, each once.
class OfNodes : public Recomputer {
 public:
  OfNodes(const Program& program, const std::vector<bool>& again) : Recomputer(program) {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      if (!again[i]) continue;
      for (ValueId id : program.nodes[i].outputs) {
        if (base(id) == id) drop(id);
      }
    }
  }

 private:
  void start(NodeId) override {}
  const Val* lookup(ValueId id) const override {
    const auto found = copies_.find(id);
    return found == copies_.end() ? nullptr : &found->second;
  }
  void store(ValueId id, Val copy) override { copies_[id] = copy; }
  int epoch_of(NodeId) const override { return 1; }

  Values copies_;
};

// Base of ways to recompute whole parts: finds the values inside parts that are not kept.
class OfParts : public Recomputer {
 protected:
  OfParts(const Program& program, std::vector<int> parts)
      : Recomputer(program), parts_(std::move(parts)) {}

  int part_of(NodeId node) const { return parts_[at(node)]; }
  int maker_part(ValueId id) const { return part_of(program_.value(base(id)).producer); }

  // Drops the values made inside parts, and constants, except what is read elsewhere. `stays` says
  // whether a value of one part that a forward node of another part reads is kept.
  template <class Stays>
  void drop_insides(Stays&& stays) {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      if (!is_forward(node) || parts_[i] == kOutside) continue;
      for (ValueId id : node.outputs) {
        if (base(id) == id) drop(id);
      }
    }
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      for (ValueId id : program_.nodes[i].inputs) read(static_cast<NodeId>(i), id, stays);
    }
    for (const Output& o : program_.outputs) keep(base(o.value));
    for (const Update& u : program_.updates) keep(base(u.value));
  }

 private:
  template <class Stays>
  void read(NodeId reader, ValueId id, Stays&& stays) {
    if (!drops(id)) return;
    const int from = maker_part(id), to = part_of(reader);
    const Phase phase = program_.node(reader).origin().phase;
    const bool is_inside = phase == Phase::kForward || phase == Phase::kBackward;
    if (from == kShared) {
      // A constant that backward nodes outside of all parts read is alive anyway.
      if (!is_inside || (phase == Phase::kBackward && to == kOutside)) keep(base(id));
    } else if (!is_inside || to == kOutside || (phase == Phase::kForward && to != from)) {
      if (!is_inside || to == kOutside || stays(from, to)) keep(base(id));
    }
  }

  std::vector<int> parts_;  // by node
};

// Recomputes parts whose inputs and outputs are all kept.
class Groups final : public OfParts {
 public:
  Groups(const Program& program, std::vector<int> parts) : OfParts(program, std::move(parts)) {
    drop_insides([](int, int) { return true; });
  }

 private:
  void start(NodeId reader) override { part_ = part_of(reader); }
  // Returns the key of a copy: constants are made for each part that reads them.
  std::pair<int, ValueId> key(ValueId id) const {
    const int part = maker_part(id);
    return {part == kShared ? part_ : part, id};
  }
  const Val* lookup(ValueId id) const override {
    const auto found = copies_.find(key(id));
    return found == copies_.end() ? nullptr : &found->second;
  }
  void store(ValueId id, Val copy) override { copies_[key(id)] = copy; }
  int epoch_of(NodeId node) const override {
    const int part = part_of(node);
    return 1 + (part == kShared ? std::max(part_, 0) : part);
  }

  int part_ = kOutside;  // of the backward node that reads
  std::map<std::pair<int, ValueId>, Val> copies_;
};

// Recomputes by halving, with a stack of blocks' inputs: to go back through the blocks [t, n),
// with t on top, the input of the middle block is computed from that of t and pushed, and so on,
// until the top is the last block; that is recomputed whole, and popped when backward has left it.
class Nested final : public OfParts {
 public:
  Nested(const Program& program, std::vector<int> parts) : OfParts(program, std::move(parts)) {
    drop_insides([](int, int) { return false; });
    find_cuts();
    levels_.push_back({});
  }

 private:
  // A block on the stack: its input; for the block on top also the values inside it.
  struct Level {
    int block = 0;
    Values values = {};
  };

  // Fills cuts_: for each block, the values made before it that this block or later ones read.
  void find_cuts() {
    std::map<ValueId, int> last;  // the last block that reads the value
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const int part = part_of(static_cast<NodeId>(i));
      if (part < 0 || !is_forward(program_.nodes[i])) continue;
      for (ValueId id : program_.nodes[i].inputs) {
        if (drops(id) && maker_part(id) >= 0) last[base(id)] = std::max(last[base(id)], part);
      }
      cuts_.resize(std::max(cuts_.size(), at(part) + 1));
    }
    for (const auto& [id, block] : last) {
      for (int b = maker_part(id) + 1; b <= block; ++b) cuts_[at(b)].push_back(id);
    }
  }

  void start(NodeId reader) override {
    const int block = part_of(reader);
    if (block < 0 || block == current_) return;
    current_ = block;
    while (levels_.back().block > block) levels_.pop_back();
    while (levels_.back().block < block) push((levels_.back().block + block + 2) / 2);
    ++epoch_;
  }

  // Computes the input of `block` from the stack, and pushes it; values in between are not kept.
  void push(int block) {
    ++epoch_;
    levels_.push_back({block});
    Level next{block};
    for (ValueId id : cuts_[at(block)]) next.values[id] = find(id);
    levels_.back() = std::move(next);
  }

  const Val* lookup(ValueId id) const override {
    for (std::size_t i = levels_.size(); i-- > 0;) {
      const auto found = levels_[i].values.find(id);
      if (found != levels_[i].values.end()) return &found->second;
    }
    return nullptr;
  }
  void store(ValueId id, Val copy) override { levels_.back().values[id] = copy; }
  int epoch_of(NodeId) const override { return epoch_; }

  std::vector<std::vector<ValueId>> cuts_;  // by block
  std::vector<Level> levels_;
  int current_ = kOutside;  // the block that backward is in
  int epoch_ = 0;
};

}  // namespace

std::vector<int> parts_of(const Program& program, const Recomputation& choice) {
  check_paths(program, choice);
  const std::vector<bool> constant = constant_nodes(program);
  std::map<std::string, int, std::less<>> numbers;
  std::vector<int> out(program.nodes.size(), kOutside);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    const std::string_view name = matched(choice.paths, node.origin().path);
    if (constant[i]) {
      out[i] = kShared;
    } else if (!name.empty()) {
      const auto next = static_cast<int>(numbers.size());
      out[i] = numbers.try_emplace(std::string(name), next).first->second / choice.every;
    }
  }
  return out;
}

std::vector<bool> constant_nodes(const Program& program) {
  std::vector<bool> out(program.nodes.size(), false);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    out[i] = is_forward(node) && std::ranges::all_of(node.inputs, [&](ValueId id) {
               const NodeId maker = program.value(id).producer;
               return maker != kNoNode && out[at(maker)];
             });
  }
  return out;
}

Program recompute(const Program& program, const Recomputation& choice) {
  switch (choice.kind) {
    case Kind::kParts: return remove_dead_nodes(Groups(program, parts_of(program, choice)).run());
    case Kind::kNested: return remove_dead_nodes(Nested(program, parts_of(program, choice)).run());
    case Kind::kNone:
    case Kind::kBudget: break;
  }
  return program;
}

Program recompute_nodes(const Program& program, const std::vector<bool>& again) {
  const std::vector<bool> constant = constant_nodes(program);
  std::vector<bool> chosen = again;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = chosen[i] && is_forward(program.nodes[i]) && !constant[i];
  }
  return remove_dead_nodes(OfNodes(program, chosen).run());
}

}  // namespace tracestep
