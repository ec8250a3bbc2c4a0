#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"

#include "ir/rewrite.h"
#include "ops/collective_sizes.h"

namespace tracestep {
namespace {

constexpr Phase kCommunication = Phase::kCommunication;

bool is_gradient_state(const Value& value) {
  return value.leaf == LeafKind::kState && value.role == Role::kGradient;
}

}  // namespace

Program sum_shards(const Program& program, const RankGroup& group) {
  std::vector<bool> is_sum(program.values.size(), false);
  for (const Update& u : program.updates) {
    if (is_gradient_state(program.value(u.leaf))) is_sum[static_cast<std::size_t>(u.value)] = true;
  }
  Rewriter r(program, "sum_shards");
  const auto call = [&](const Node& node, std::string_view op, Val x) {
    const auto guard = r.from(node, &kCommunication);
    return r.builder().call1(op, {x}, in_group(group));
  };
  for (const Node& node : program.nodes) {
    const bool is_whole = is_sum[static_cast<std::size_t>(node.outputs[0])];
    const bool adds = node.op->is_sum && is_gradient_state(program.value(node.inputs[0]));
    if (!is_whole && !adds) {
      r.copy(node);
      continue;
    }
    std::vector<Val> inputs = r.inputs(node);
    if (adds) inputs[0] = call(node, "on_first_rank", inputs[0]);
    const Val own = [&] {
      const auto guard = r.builder().like(node);
      return r.builder().call(*node.op, inputs, node.attrs).front();
    }();
    r.replace(node.outputs[0], is_whole ? call(node, "all_reduce", own) : own);
  }
  return r.finish();
}

bool sums_shards(const PassOptions& o) {
  return o.context.sums_shards && o.run.parallel.replicas() > 1 && !o.context.has_gradients;
}

Program sum_shards(const Program& p, const PassOptions& o) {
  return sum_shards(p, o.run.parallel.across_replicas());
}

}  // namespace tracestep
