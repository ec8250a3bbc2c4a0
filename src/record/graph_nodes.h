// Maps each node of a captured graph to the program node that it belongs to, by the ids that a
// profiler gives the graph's nodes. A back end's ActivityTracer fills it while launches are
// captured.
#pragma once

#include <cstdint>
#include <map>

#include "record/recorder.h"

namespace tracestep {

class GraphNodes {
 public:
  // Sets the program node to which graph nodes that are created from now on belong; kWholeStep: to
  // none.
  void set_node(std::int32_t node) { node_ = node; }
  void created(std::uint64_t id) { node_of_[id] = node_; }
  // Records that graph node `to` is a copy of `from`: an executable graph consists of copies of the
  // captured nodes.
  void cloned(std::uint64_t from, std::uint64_t to) { node_of_[to] = node_of(from); }
  // Returns the program node of a graph node; kWholeStep if the id is not known.
  std::int32_t node_of(std::uint64_t id) const {
    const auto found = node_of_.find(id);
    return found == node_of_.end() ? kWholeStep : found->second;
  }
  void clear() { *this = {}; }

 private:
  std::int32_t node_ = kWholeStep;
  std::map<std::uint64_t, std::int32_t> node_of_;
};

}  // namespace tracestep
