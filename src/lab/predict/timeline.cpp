#include "lab/predict/timeline.h"

#include <algorithm>
#include <array>

#include "analysis/cost.h"
#include "base/indexed.h"
#include "ir/op_def.h"
#include "ops/collective_sizes.h"

namespace tracestep {

double Link::us(const Program& program, const Node& node, bool is_first) const {
  const auto bytes = static_cast<double>(received_bytes(program, node, 0));
  const RankGroup group = group_of(node.attrs);
  const bool is_between_nodes = of_node > 0 && group.ranks * group.stride > of_node;
  const double rate = is_between_nodes ? network_gb_s : gb_s;
  return bytes / (rate * 1e3) + (is_first ? call_us : 0.0);
}

Timeline timeline_of(const Program& program, std::span<const Turn> turns,
                     std::span<const double> us) {
  std::vector<double> end(program.nodes.size(), 0.0);
  std::array<double, kLaneCount> lanes{};  // until when each is busy
  double others = 0.0;                     // time of kernels that are no collectives
  Timeline out;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Turn& turn = turns[i];
    double start = lanes[at(turn.lane)];
    if (turn.lane != 0) start = std::max(start, lanes[0]);
    for (const NodeId wait : turn.waits) {
      if (wait != kNoNode) start = std::max(start, end[at(wait)]);
    }
    lanes[at(turn.lane)] = end[i] = start + us[i];
    const bool is_collective = program.nodes[i].op->kernel_class == KernelClass::kCollective;
    (is_collective ? out.collectives : others) += us[i];
  }
  out.span = std::ranges::max(lanes);
  out.exposed = std::max(0.0, out.span - others);
  return out;
}

}  // namespace tracestep
