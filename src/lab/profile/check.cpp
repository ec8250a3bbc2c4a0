// Checks that the kernels that ran are those that the program says must run.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/cost.h"
#include "lab/profile/lanes.h"
#include "lab/profile/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"
#include "spec/fields.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

// Counts of matrix products: of those at the model paths of weights, and of those in attention.
struct Products {
  std::int64_t weights = 0, attention = 0;
};

class Check {
 public:
  explicit Check(const ProfiledCell& cell)
      : p_(cell.profile), micro_batches_(micro_batches_of(cell.profile.spec.step)) {
    weight_paths_.insert(std::string(scope::kHead));  // its weight may be the embedding's
    for (ValueId id : p_.program.leaves) {
      const Value& leaf = p_.program.value(id);
      // A weight that ranks hold in parts is a vector here; vectors of norms are in no product.
      if (leaf.leaf == LeafKind::kParameter) weight_paths_.insert(component_path(leaf.name));
    }
    loss_chunks_ = std::ranges::count_if(p_.program.nodes, [&](const Node& node) {
      return is_forward(node) && is_product(node) && node.epoch != 0;
    });
    const std::string of_first = scope::path({scope::layer(0), scope::kFeedForward, ""});
    const auto first = std::ranges::find_if(
        weight_paths_, [&](const std::string& path) { return path.starts_with(of_first); });
    if (first != weight_paths_.end()) {
      ffn_chunks_ = std::ranges::count_if(p_.program.nodes, [&](const Node& node) {
        return is_forward(node) && is_product(node) &&
               std::ranges::find(node.origins, *first, &Origin::path) != node.origins.end();
      });
    }
    runs_.resize(p_.steps.size());
    for (auto& counts : runs_) counts.assign(p_.program.nodes.size(), 0);
    for (const ProfiledLaunch& l : p_.launches) {
      if (l.node < 0) {
        ++nobody_;
      } else {
        ++runs_[static_cast<std::size_t>(l.step)][static_cast<std::size_t>(l.node)];
      }
    }
    count_batches();
  }

  // Counts the products of the program, and those among them that ran in every step.
  Products expected(Phase phase) const { return count(phase, false); }
  Products ran(Phase phase) const { return count(phase, true); }

  // True if attention is one kernel instead of a product on each side of its softmax.
  bool has_whole_attention(Phase phase) const {
    return std::ranges::any_of(p_.program.nodes, [&](const Node& node) {
      return node.op->kernel_class == KernelClass::kAttention && node.origin().phase == phase;
    });
  }

  // Returns the number of parts that the last product is computed in; each is a product of its own.
  std::int64_t loss_chunks() const {
    return std::max<std::int64_t>(loss_chunks_ / micro_batches_, 1);
  }
  // Returns the number of parts that each feed-forward is computed in.
  std::int64_t ffn_chunks() const {
    return std::max<std::int64_t>(ffn_chunks_ / micro_batches_, 1);
  }
  std::int64_t nodes() const { return launch_count(p_.program); }
  std::int64_t nodes_that_ran() const {
    std::int64_t n = 0;
    for (std::size_t i = 0; i < p_.program.nodes.size(); ++i) n += ran_always(i) ? 1 : 0;
    return n;
  }
  std::int64_t nodes_with_several() const {
    std::int64_t n = 0;
    for (std::size_t i = 0; i < p_.program.nodes.size(); ++i) {
      n += std::ranges::any_of(runs_, [&](const auto& counts) { return counts[i] > 1; }) ? 1 : 0;
    }
    return n;
  }
  // Counts the kernels of a step: the first step whose count is not the graph's, or any if all are.
  std::int64_t kernels() const {
    std::vector<std::int64_t> counts(p_.steps.size(), 0);
    for (const ProfiledLaunch& l : p_.launches) ++counts[static_cast<std::size_t>(l.step)];
    const auto other =
        std::ranges::find_if(counts, [&](std::int64_t count) { return count != p_.graph_kernels; });
    return other != counts.end() ? *other : *p_.graph_kernels;
  }
  // Returns the number of launches without a node, over all steps.
  std::int64_t nobody() const { return nobody_; }
  std::int64_t steps_that_differ() const {
    return std::ranges::count_if(runs_, [&](const auto& counts) { return counts != runs_[0]; });
  }
  // Names the first node that should have run and did not: "matmul layers.3.ffn.w1"; empty: none.
  std::string first_missing() const {
    for (std::size_t i = 0; i < p_.program.nodes.size(); ++i) {
      const Node& node = p_.program.nodes[i];
      if (must_run(node) && !ran_always(i)) return node.op->name + " " + node.origin().path;
    }
    return {};
  }

 private:
  // Counts the kernels of a batch for each of its nodes.
  void count_batches() {
    const std::vector<std::vector<NodeId>> nodes_of = nodes_of_kernels(p_);
    for (auto& counts : runs_) {
      for (std::size_t last = 0; last < nodes_of.size(); ++last) {
        for (NodeId node : nodes_of[last]) {
          if (node != static_cast<NodeId>(last)) {
            counts[static_cast<std::size_t>(node)] += counts[last];
          }
        }
      }
    }
  }
  static bool is_forward(const Node& node) { return node.origin().phase == Phase::kForward; }

  bool must_run(const Node& node) const { return launches(p_.program, node); }
  bool ran_always(std::size_t node) const {
    return std::ranges::all_of(runs_, [&](const auto& counts) { return counts[node] > 0; });
  }
  Products count(Phase phase, bool only_those_that_ran) const {
    Products out;
    for (std::size_t i = 0; i < p_.program.nodes.size(); ++i) {
      const Node& node = p_.program.nodes[i];
      if (!is_product(node) || (only_those_that_ran && !ran_always(i))) continue;
      // A merged product has the origins of those that it stands for.
      const auto weights = std::ranges::count_if(node.origins, [&](const Origin& origin) {
        return origin.phase == phase && weight_paths_.contains(origin.path);
      });
      out.weights += weights;
      if (weights == 0 && node.origin().phase == phase) ++out.attention;
    }
    return out;
  }

  const Profile& p_;
  const std::int64_t micro_batches_;
  std::set<std::string> weight_paths_;
  std::int64_t loss_chunks_ = 0;        // 0: the loss is whole
  std::int64_t ffn_chunks_ = 0;         // products of a feed-forward's first weight
  std::vector<std::vector<int>> runs_;  // by step and node: launches
  std::int64_t nobody_ = 0;
};

// A count to be checked: by the formula, in the program, and of the kernels that ran. Without the
// first two it is only reported and cannot fail.
struct Count {
  std::string what, why;
  std::optional<std::int64_t> expected, in_program;
  std::int64_t ran = 0;
  std::string detail = {};

  bool is_ok() const { return !expected || (*expected == *in_program && *in_program == ran); }
};

Fields<Count> fields(const std::string& label, const Json& key) {
  using C = const Count&;
  return {
      {col::label.titled("cell"), [label](C) { return label; }},
      {col::what, &Count::what},
      {col::why, &Count::why},
      {int_column("expected", "", "by the formula"), [](C c) { return or_null(c.expected); }},
      {int_column("in_program", "program", "nodes of the program"),
       [](C c) { return or_null(c.in_program); }},
      {int_column("ran", "", "kernels, or nodes of which one was seen in every step"), &Count::ran},
      {col::verdict, [](C c) { return c.is_ok() ? "ok" : "differs"; }},
      {col::detail, [](C c) { return or_null(c.detail); }},
      {data_only(col::cell), [key](C) { return key; }}};
}

// Explains a count of products: "2L", "L, one kernel for all", or how many layers have one kernel.
std::string why_of_attention(std::int64_t whole, std::int64_t layers, int products) {
  if (whole == 0) return fmt::format("{}L", products);
  if (whole == layers) return "L, one kernel for all";
  return fmt::format("{} of L = {} by one kernel, {} products for each other", whole, layers,
                     products);
}

std::vector<Count> counts_of(const ProfiledCell& cell) {
  const Check check(cell);
  const RunSpec& step = cell.profile.spec.step;
  const std::int64_t layers = step.model.layers;
  // Layers whose attention can be one kernel.
  const std::int64_t tiled = step.model.takes_tiles() ? layers : 0;
  const std::int64_t whole = check.has_whole_attention(Phase::kForward) ? tiled : 0;
  const std::int64_t chunks = check.loss_chunks();
  const std::int64_t of_layer = 4 + (step.model.is_gated ? 3 : 2) * check.ffn_chunks();
  const std::int64_t parts = micro_batches_of(step);
  const std::int64_t weights = parts * (of_layer * layers + chunks);
  const std::int64_t attention = parts * (whole + 2 * (layers - whole));
  const std::string in_parts = parts == 1 ? "" : fmt::format(", {} micro-batches", parts);
  const Products in = check.expected(Phase::kForward), ran = check.ran(Phase::kForward);
  const bool has_formulas = step.model.captured == nullptr && !trains_part(step);
  std::vector<Count> out;
  if (has_formulas) {
    out = {{"weight products, forward",
            fmt::format("{}L + {}, L = {}{}", of_layer, chunks, layers, in_parts), weights,
            in.weights, ran.weights},
           {"attention products, forward", why_of_attention(whole, layers, 2) + in_parts, attention,
            in.attention, ran.attention}};
  }
  const bool has_backward = step.mode == Mode::kForwardBackward || step.mode == Mode::kStep;
  if (has_formulas && has_backward) {
    const Products in_b = check.expected(Phase::kBackward), ran_b = check.ran(Phase::kBackward);
    out.push_back(
        {"weight products, backward", "twice forward's", 2 * weights, in_b.weights, ran_b.weights});
    const std::int64_t whole_b = check.has_whole_attention(Phase::kBackward) ? tiled : 0;
    out.push_back({"attention products, backward", why_of_attention(whole_b, layers, 4) + in_parts,
                   parts * (whole_b + 4 * (layers - whole_b)), in_b.attention, ran_b.attention});
  }
  const std::string missing = check.first_missing();
  out.push_back({"all nodes that are no views", "each has a kernel", check.nodes(), check.nodes(),
                 check.nodes_that_ran(), missing.empty() ? "" : "first missing: " + missing});
  if (const auto kernels = cell.profile.graph_kernels) {
    out.push_back(
        {"kernels of a step", "those of the replayed graph", kernels, kernels, check.kernels()});
  }
  out.push_back({"launches that no node asked for", "none", 0, 0, check.nobody()});
  out.push_back(
      {"steps unlike the first", "every step is the same", 0, 0, check.steps_that_differ()});
  out.push_back({.what = "nodes with several kernels",
                 .why = "as the library chose",
                 .expected = {},
                 .in_program = {},
                 .ran = check.nodes_with_several()});
  return out;
}

}  // namespace

Table launch_check_table(std::span<const ProfiledCell> cells, int* failures) {
  Table table{.name = "launch_check",
              .title = "What must run, and what ran, in every step",
              .columns = fields({}, {}).columns()};
  int failed = 0;
  for (const ProfiledCell& cell : cells) {
    if (cell.profile.status != Status::kOk) continue;
    const Fields<Count> of_cell = fields(label_of(cell.profile), key_of(cell.profile.spec.step));
    for (const Count& count : counts_of(cell)) {
      table.add_row(of_cell.row(count));
      failed += count.is_ok() ? 0 : 1;
    }
  }
  if (failures != nullptr) *failures = failed;
  return table;
}

}  // namespace tracestep
