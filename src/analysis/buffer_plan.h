// BufferPlan: the buffer that each value lives in, and the nodes between which the buffer exists.
// Views share the buffer of their base, a donated input passes its buffer to an output, and the
// parts of an assembly live in its buffer. Executors allocate and free by this plan, and
// predictions count its bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/lanes.h"
#include "base/category.h"
#include "ir/program.h"

namespace tracestep {

struct Buffer {
  ValueId owner = kNoValue;  // The first value that lives in it.
  std::int64_t bytes = 0;    // Its bytes in the device's memory.
  // The bytes of a leaf that lies in the host's memory; its `bytes` are 0.
  std::int64_t host_bytes = 0;
  // The node for which it is allocated; kNoNode: it is a leaf, which always exists.
  NodeId first = kNoNode;
  // The last node that reads it, or that waits for a reader on another lane; the number of nodes:
  // it exists until the end.
  NodeId last = kNoNode;
  Category category = Category::kTemporary;
};

struct BufferPlan {
  std::vector<Buffer> buffers;
  // The buffer of each value; -1: the value is never read, so it gets none.
  std::vector<int> buffer_of;
  // For each node, the buffers that are allocated for it, in order.
  std::vector<std::vector<int>> allocated_at;
  // For each node, the buffers that no later node reads.
  std::vector<std::vector<int>> freed_after;
  // For each node, whether it launches something; false for views and assemblies.
  std::vector<bool> runs;
  std::map<ValueId, Layout> assembled;  // The place of each result that is a part of an assembly.
  std::vector<Turn> turns;              // By node.

  const Buffer* buffer(ValueId id) const {
    const int b = buffer_of[static_cast<std::size_t>(id)];
    return b < 0 ? nullptr : &buffers[static_cast<std::size_t>(b)];
  }
  // Returns where the value's elements lie in its buffer: as the program says, except for parts
  // of an assembly. nullopt: the value is a view of such a part and has no strides there.
  std::optional<Layout> layout_of(const Program& program, ValueId id) const;
};

// Plans the buffers in O(nodes + values). Donation: an output takes an input's buffer if the op
// allows it and the input fills the whole buffer and has no later reader; a leaf is only donated if
// the result becomes its new value. An assembly takes over a buffer if one node writes all parts,
// and may write each over an input at the same place.
BufferPlan plan_buffers(const Program& program);

// Returns updates whose new value is outside of the leaf's buffer, so that they need an `assign`.
std::vector<Update> updates_out_of_place(const Program& program, const BufferPlan& buffer_plan);

}  // namespace tracestep
