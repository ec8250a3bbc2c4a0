// Least cuts against every cut of small random graphs.
#include "analysis/min_cut.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tracestep {
namespace {

struct Edge {
  int from, to;
  double capacity;
};

double capacity_of(const std::vector<Edge>& edges, const std::vector<bool>& sink_side) {
  double out = 0.0;
  for (const Edge& e : edges) {
    const auto is_cut =
        !sink_side[static_cast<std::size_t>(e.from)] && sink_side[static_cast<std::size_t>(e.to)];
    if (is_cut) out += e.capacity;
  }
  return out;
}

TEST(MinCutTest, NoCutOfARandomGraphIsSmallerAndNoneAsSmallHasFewerNodesAtTheSink) {
  std::mt19937 random(1);
  constexpr int kInner = 6, kNodes = kInner + 2;
  for (int round = 0; round < 200; ++round) {
    MinCut graph;
    for (int i = 0; i < kInner; ++i) graph.add_node();
    std::vector<Edge> edges;
    for (int i = 0; i < 14; ++i) {
      const int from = static_cast<int>(random() % kNodes),
                to = static_cast<int>(random() % kNodes);
      if (from == to || from == MinCut::kSink || to == MinCut::kSource) continue;
      edges.push_back({from, to, static_cast<double>(random() % 8)});
      graph.add_edge(from, to, edges.back().capacity);
    }
    const std::vector<bool> found = graph.sink_side();
    EXPECT_FALSE(found[MinCut::kSource]);
    EXPECT_TRUE(found[MinCut::kSink]);
    const double least = capacity_of(edges, found);
    const auto count = std::ranges::count(found, true);
    for (unsigned set = 0; set < (1U << kInner); ++set) {
      std::vector<bool> other(kNodes, false);
      other[MinCut::kSink] = true;
      for (int i = 0; i < kInner; ++i) other[static_cast<std::size_t>(i + 2)] = (set >> i & 1) != 0;
      const double capacity = capacity_of(edges, other);
      EXPECT_LE(least, capacity);
      if (capacity == least) {
        EXPECT_LE(count, std::ranges::count(other, true));
      }
    }
  }
}

TEST(MinCutTest, AnInfiniteEdgeIsNeverCut) {
  MinCut graph;
  const int a = graph.add_node(), b = graph.add_node();
  graph.add_edge(MinCut::kSource, a, 5.0);
  graph.add_edge(a, b, MinCut::kInfinite);
  graph.add_edge(b, MinCut::kSink, 7.0);
  EXPECT_EQ(graph.sink_side(), (std::vector<bool>{false, true, true, true}));
}

}  // namespace
}  // namespace tracestep
