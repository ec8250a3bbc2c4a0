// The minimum cut of a directed graph with real capacities, by Dinic's algorithm.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace tracestep {

class MinCut {
 public:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  // Nodes 0 (source) and 1 (sink) are there from the start.
  static constexpr int kSource = 0, kSink = 1;
  int add_node();
  void add_edge(int from, int to, double capacity);

  // By node: whether it is on the sink's side of a cut of least capacity; of several such cuts,
  // that with the fewest nodes there. May be called once. O(nodes² · edges) at worst, close to
  // linear for graphs of programs.
  std::vector<bool> sink_side();

 private:
  struct Edge {
    int to;
    double left;  // capacity that is not used
  };
  bool find_levels();
  double push(int node, double most);

  std::vector<Edge> edges_;               // edge i ^ 1 is the reverse of edge i
  std::vector<std::vector<int>> out_{2};  // by node: its edges
  std::vector<int> level_;                // by node: edges from the source; -1: not reached
  std::vector<std::size_t> next_;         // by node: the first edge that may still take flow
  double least_ = 0.0;                    // flows below this are rounding
};

}  // namespace tracestep
