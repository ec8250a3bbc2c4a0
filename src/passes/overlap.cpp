#include "passes/kernel_passes.h"
#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "analysis/lanes.h"
#include "analysis/readers.h"
#include "base/indexed.h"
#include "ir/layer_path.h"
#include "ir/rewrite.h"

namespace tracestep {
namespace {

enum class Kind : std::uint8_t {
  kOther,
  kResult,   // a collective whose results nothing but the optimizer, collectives and outputs read
  kWeights,  // a collective whose operand is there when the step starts
};

// Finds the Kind of each node: which collectives this pass moves, and how.
class Kinds {
 public:
  explicit Kinds(const Program& program)
      : program_(program),
        readers_(program),
        is_there_(program.values.size(), false),
        out_(program.nodes.size(), Kind::kOther) {
    find_what_is_there();
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const Node& node = program.nodes[i];
      if (node.op->kernel_class != KernelClass::kCollective || !has_lane(*node.op)) continue;
      if (is_result(node)) {
        out_[i] = Kind::kResult;
      } else if (is_there(node.inputs[0])) {
        out_[i] = Kind::kWeights;
      }
    }
  }

  Kind operator[](NodeId id) const { return out_[at(id)]; }

 private:
  // True if the value is computed from weights and states alone, so that no input has to be there.
  bool is_there(ValueId id) const { return is_there_[at(id)]; }
  void find_what_is_there() {
    for (ValueId id : program_.leaves) {
      is_there_[at(id)] = program_.value(id).leaf != LeafKind::kInput;
    }
    for (const Node& node : program_.nodes) {
      const bool follows =
          std::ranges::all_of(node.inputs, [&](ValueId id) { return is_there(id); });
      for (ValueId id : node.outputs) is_there_[at(id)] = follows;
    }
  }

  bool is_result(const Node& node) const {
    return std::ranges::all_of(node.outputs, [&](ValueId value) {
      return std::ranges::all_of(readers_.nodes[at(value)], [&](NodeId id) {
        const Node& reader = program_.node(id);
        const Phase phase = reader.origin().phase;
        return phase == Phase::kOptimizer || phase == Phase::kCommunication ||
               (makes_views(program_, reader) && is_result(reader));
      });
    });
  }

  const Program& program_;
  const Readers readers_;
  std::vector<bool> is_there_;  // by value
  std::vector<Kind> out_;
};

class OverlapPass {
 public:
  OverlapPass(const Program& program, const Parallel& choice)
      : program_(program),
        choice_(choice),
        kinds_(program),
        r_(program, "overlap"),
        available_(program.values.size(), false) {
    for (ValueId id : program.leaves) available_[at(id)] = true;
    for (std::size_t i = program.nodes.size(); i-- > 0 && !is_computed(program.nodes[i]);) {
      if (program.nodes[i].origin().phase == Phase::kOptimizer) {
        first_update_ = static_cast<NodeId>(i);
      }
    }
    holds_ = choice.sums_beside_updates() && first_update_ != kNoNode;
    place_gathers();
  }

  Program run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      begin_gathers_at(id);
      if (id == first_update_) {
        holds_ = false;
        close_bucket();
      }
      add(id);
      add_waiting();
    }
    finish_results();
    return r_.finish();
  }

 private:
  using Batch = std::vector<NodeId>;

  // True for nodes of forward or backward, recomputed ones included.
  static bool is_computed(const Node& node) {
    const Phase phase = node.origin().phase;
    return phase != Phase::kOptimizer && phase != Phase::kCommunication;
  }

  bool is_beside() const { return choice_.runs_beside(); }

  // --- gathers of weights ---
  // Returns the layer, or the path outside the layers, and epoch for which a weight is gathered.
  static std::string unit_of(const Node& node) {
    const std::string& path = node.origin().path;
    const std::string_view layer = layer_of(path);
    return fmt::format("{}#{}", layer.empty() ? path : layer, node.epoch);
  }

  void place_gathers() {
    std::vector<Batch> batches;
    std::string unit;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (kinds_[id] != Kind::kWeights) continue;
      const std::string next = unit_of(program_.node(id));
      const bool is_new =
          batches.empty() || next != unit || choice_.bucket_bytes == Parallel::kEachTensor;
      if (is_new) batches.emplace_back();
      batches.back().push_back(id);
      unit = next;
    }
    const std::size_t ahead = is_beside() ? static_cast<std::size_t>(choice_.prefetch) : 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const NodeId start = batches[i < ahead ? 0 : i - ahead].front();
      gathers_at_[start].push_back(batches[i]);
    }
  }

  void begin_gathers_at(NodeId id) {
    const auto found = gathers_at_.find(id);
    if (found == gathers_at_.end()) return;
    for (const Batch& batch : found->second) {
      for (NodeId gather : batch) copy_operands(gather);
      issue(batch);
      make_available(batch);
    }
  }

  // Copies the nodes that make the collective's operands out of leaves.
  void copy_operands(NodeId id) {
    for (ValueId input : program_.node(id).inputs) {
      const NodeId maker = program_.value(input).producer;
      if (maker == kNoNode || r_.has(input)) continue;
      copy_operands(maker);
      copy(maker);
    }
  }

  // Adds the node to the program, or a collective to the bucket; without its operands it waits.
  void add(NodeId id) {
    const Node& node = program_.node(id);
    if (r_.has(node.outputs[0])) return;
    while (!is_ready(node) && !full_.empty() && !holds_) issue_next();
    if (!is_ready(node)) {
      waiting_.push_back(id);
    } else if (kinds_[id] == Kind::kResult) {
      bucket_.push_back(id);
      bucket_bytes_ +=
          std::max(program_.type(node.inputs[0]).bytes(), program_.type(node.outputs[0]).bytes());
      if (bucket_bytes_ >= choice_.full_bytes()) close_bucket();
    } else {
      copy(id);
    }
  }

  // Adds the waiting nodes again, if results of a batch have become readable since the last call.
  void add_waiting() {
    while (std::exchange(has_settled_, false)) {
      for (NodeId id : std::exchange(waiting_, {})) add(id);
    }
  }

  void finish_results() {
    while (!bucket_.empty() || !full_.empty() || !issued_.empty()) {
      close_bucket();
      if (!has_settled_) {
        if (full_.empty()) {
          settle();
        } else {
          issue_next();
        }
      }
      add_waiting();
    }
    TRACESTEP_CHECK(waiting_.empty(), "overlap: {} nodes wait", waiting_.size());
  }

  // True if all operands may be read: a batch's results may once the next batch has been issued.
  bool is_ready(const Node& node) const {
    return std::ranges::all_of(node.inputs, [&](ValueId id) { return available_[at(id)]; });
  }

  // Makes the bucket a batch; issues the next batch if a node has run since the last one issued.
  void close_bucket() {
    if (!bucket_.empty()) full_.push_back(std::exchange(bucket_, {}));
    bucket_bytes_ = 0;
    if (has_run_) issue_next();
  }

  // Issues the next batch; readers of the batch before it may run from then on.
  void issue_next() {
    if (full_.empty() || (holds_ && !issued_.empty())) return;
    const Batch batch = std::move(full_.front());
    full_.pop_front();
    issue(batch);
    settle();
    issued_ = batch;
    has_run_ = false;
  }

  void settle() {
    has_settled_ = has_settled_ || !issued_.empty();
    make_available(issued_);
    issued_.clear();
  }

  void make_available(const Batch& batch) {
    for (NodeId id : batch) {
      for (ValueId value : program_.node(id).outputs) available_[at(value)] = true;
    }
  }

  void issue(const Batch& batch) {
    ++batches_;
    for (NodeId id : batch) {
      const Node& node = program_.node(id);
      Attrs attrs = node.attrs;
      attrs.set("lane", std::int64_t{is_beside()});
      if (batch.size() > 1) attrs.set("batch", std::int64_t{batches_});
      const auto guard = r_.builder().like(node);
      r_.replace(node, r_.builder().call(*node.op, r_.inputs(node), std::move(attrs)));
    }
  }

  void copy(NodeId id) {
    r_.copy(program_.node(id));
    make_available({id});
    if (!launches(program_, program_.node(id))) return;
    has_run_ = true;
    issue_next();
  }

  const Program& program_;
  const Parallel choice_;
  const Kinds kinds_;
  Rewriter r_;
  // The first update after backward, at the same time as which the last sums run, or kNoNode.
  NodeId first_update_ = kNoNode;
  std::vector<bool> available_;                      // by value: nodes may read it
  std::map<NodeId, std::vector<Batch>> gathers_at_;  // by the node that they begin before
  Batch bucket_;                                     // results that are made together, so far
  std::int64_t bucket_bytes_ = 0;
  std::deque<Batch> full_;    // batches that are ready to be issued
  Batch issued_;              // the last one
  bool holds_ = false;        // all batches but the first wait for the updates
  bool has_run_ = true;       // other nodes have run since
  bool has_settled_ = false;  // its results, or those before, may be read by nodes that wait
  Batch waiting_;             // nodes that read what is not available, in order
  int batches_ = 0;
};

}  // namespace

Program overlap(const Program& program, const Parallel& choice) {
  return OverlapPass(program, choice).run();
}

bool overlaps(const PassOptions& o) {
  return reduces(o) || o.shards_weights() || o.run.parallel.runs_beside_products();
}

Program overlap(const Program& p, const PassOptions& o) {
  const Program batches = reduces(o) || o.shards_weights() ? overlap(p, o.run.parallel) : p;
  return assign_updates(o.run.parallel.runs_beside_products() ? beside_products(batches) : batches);
}

}  // namespace tracestep
