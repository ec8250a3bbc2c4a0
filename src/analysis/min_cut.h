// The minimum cut of a directed graph with real capacities, by Dinic's algorithm.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace tracestep {

class MinCut {
 public:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  // The source and the sink, which exist from the start.
  static constexpr int kSource = 0, kSink = 1;
  int add_node();
  void add_edge(int from, int to, double capacity);

  // Returns for each node whether it is on the sink's side of a minimum cut; of several, the one
  // with the fewest nodes there. May be called once. O(nodes² · edges) at worst, close to linear
  // for graphs of programs.
  std::vector<bool> sink_side();

 private:
  struct Edge {
    int to;
    double left;  // The remaining capacity.
  };
  bool find_levels();
  double push(int node, double most);

  std::vector<Edge> edges_;               // Edge i ^ 1 is the reverse of edge i.
  std::vector<std::vector<int>> out_{2};  // The edges of each node.
  // The distance of each node from the source, in edges; -1: it is not reached.
  std::vector<int> level_;
  std::vector<std::size_t> next_;  // For each node, its first edge that may still take flow.
  double least_ = 0.0;             // Flows below this are rounding errors.
};

}  // namespace tracestep
