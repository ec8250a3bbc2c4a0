#include "analysis/origins.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "analysis/cost.h"
#include "ir/builder.h"

namespace tracestep {
namespace {

// Returns, by origin, the bytes of a merged call's results, which are equally many for each origin.
std::vector<double> bytes_of_groups(const Program& program, const Node& node) {
  std::vector<double> out(node.origins.size(), 0.0);
  const std::size_t each = node.outputs.size() / out.size();
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    out[i / each] += static_cast<double>(program.type(node.outputs[i]).bytes());
  }
  return out;
}

// Returns a program of the node alone, decomposed into its parts.
Program parts_of(const Program& program, const Node& node) {
  Builder b("parts");
  std::vector<Val> inputs;
  for (ValueId id : node.inputs) {
    inputs.push_back(b.input(fmt::format("x{}", inputs.size()), program.type(id)));
  }
  const auto guard = b.like(node);
  node.op->decompose({b, node.attrs, inputs, {}, {}, {}});
  return b.finish();
}

bool is_same(const Origin& a, const Origin& b) {
  return a.path == b.path && a.phase == b.phase;
}

// Returns, by origin of the node, the bytes that its parts move; the origins of a part share them.
std::vector<double> bytes_of_parts(const Program& program, const Node& node) {
  std::vector<double> out(node.origins.size(), 0.0);
  const Program parts = parts_of(program, node);
  for (const Node& part : parts.nodes) {
    const Cost cost = cost_of(parts, part);
    const auto bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
    for (const Origin& origin : part.origins) {
      const auto found =
          std::ranges::find_if(node.origins, [&](const Origin& o) { return is_same(o, origin); });
      if (found == node.origins.end()) continue;
      out[static_cast<std::size_t>(found - node.origins.begin())] +=
          bytes / static_cast<double>(part.origins.size());
    }
  }
  return out;
}

}  // namespace

std::vector<double> origin_shares(const Program& program, const Node& node) {
  const std::size_t count = node.origins.size();
  std::vector<double> out(count, 1.0);
  if (count > 1 && node.op->donates_in_groups && node.outputs.size() % count == 0) {
    out = bytes_of_groups(program, node);
  } else if (count > 1 && node.op->decompose) {
    out = bytes_of_parts(program, node);
  }
  const double total = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& share : out) share = total > 0.0 ? share / total : 1.0 / static_cast<double>(count);
  return out;
}

}  // namespace tracestep
