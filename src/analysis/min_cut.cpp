#include "analysis/min_cut.h"

#include <algorithm>
#include <cmath>

namespace tracestep {
namespace {

constexpr double kRounding = 1e-12;

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

int MinCut::add_node() {
  out_.emplace_back();
  return static_cast<int>(out_.size()) - 1;
}

void MinCut::add_edge(int from, int to, double capacity) {
  out_[at(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  out_[at(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0.0});
  if (std::isfinite(capacity)) least_ = std::max(least_, capacity * kRounding);
}

bool MinCut::find_levels() {
  level_.assign(out_.size(), -1);
  next_.assign(out_.size(), 0);
  std::vector<int> queue{kSource};
  level_[kSource] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (int e : out_[at(queue[i])]) {
      const Edge& edge = edges_[at(e)];
      if (edge.left <= least_ || level_[at(edge.to)] >= 0) continue;
      level_[at(edge.to)] = level_[at(queue[i])] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[kSink] >= 0;
}

// Sends up to `most` from the node to the sink, one level on by each edge; returns the flow sent.
double MinCut::push(int node, double most) {
  if (node == kSink) return most;
  for (std::size_t& i = next_[at(node)]; i < out_[at(node)].size(); ++i) {
    const int e = out_[at(node)][i];
    const Edge edge = edges_[at(e)];
    if (edge.left <= least_ || level_[at(edge.to)] != level_[at(node)] + 1) continue;
    const double sent = push(edge.to, std::min(most, edge.left));
    if (sent <= least_) continue;
    edges_[at(e)].left -= sent;
    edges_[at(e ^ 1)].left += sent;
    return sent;
  }
  return 0.0;
}

std::vector<bool> MinCut::sink_side() {
  while (find_levels()) {
    while (push(kSource, kInfinite) > 0.0) {
    }
  }
  // A node that can still reach the sink is on the sink's side in every least cut.
  std::vector<bool> out(out_.size(), false);
  std::vector<int> queue{kSink};
  out[kSink] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (int e : out_[at(queue[i])]) {
      const int from = edges_[at(e)].to;
      if (out[at(from)] || edges_[at(e ^ 1)].left <= least_) continue;
      out[at(from)] = true;
      queue.push_back(from);
    }
  }
  return out;
}

}  // namespace tracestep
