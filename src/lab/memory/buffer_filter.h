// Selects the buffers that a table lists: all, or those of some phases and a component, without
// some categories.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/memory_map.h"

namespace tracestep {

struct BufferFilter {
  std::set<Category> without = {};
  // Phases of the node that allocates the buffer; empty: any phase, and leaves.
  std::set<Phase> phases = {};
  // A part of a model path, such as "attn" or "layers.3.ffn"; empty: any.
  std::string component = {};

  bool admits(const MappedBuffer& buffer) const;
  bool is_all() const { return without.empty() && phases.empty() && component.empty(); }
};

// True if `component` is a run of whole names in `path`: "attn.softmax" in "layers.3.attn.softmax".
// An empty component is in every path.
bool is_part_of(std::string_view component, std::string_view path);

// Returns the names that people give categories and phases: "optimizer_states", "backward".
std::vector<std::string> category_names();
Category category_named(std::string_view name);  // The category with one of category_names().

}  // namespace tracestep
