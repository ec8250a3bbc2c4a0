// BufferPlan: which buffer every value lives in, and which nodes the buffer lives between. Views
// share the buffer of their base; a donated input passes its buffer to an output; the parts of an
// assembly live in its buffer. Executors allocate and free by this plan, and predictions count its
// bytes.
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
  ValueId owner = kNoValue;     // the value that first lives in it
  std::int64_t bytes = 0;       // in the device's memory
  std::int64_t host_bytes = 0;  // in the host's: of a leaf that lies there, which has no `bytes`
  NodeId first = kNoNode;       // the node it is allocated for; kNoNode: a leaf, always alive
  // The last node that reads it, or that waits for a reader on another lane; node count: alive at
  // the end.
  NodeId last = kNoNode;
  Category category = Category::kTemporary;
};

struct BufferPlan {
  std::vector<Buffer> buffers;
  std::vector<int> buffer_of;                  // by value; -1: never read, not allocated
  std::vector<std::vector<int>> allocated_at;  // by node: buffers it needs, in order
  std::vector<std::vector<int>> freed_after;   // by node: buffers without later readers
  std::vector<bool> runs;                      // by node: false for views and assemblies
  std::map<ValueId, Layout> assembled;         // results that are parts of an assembly: where
  std::vector<Turn> turns;                     // by node

  const Buffer* buffer(ValueId id) const {
    const int b = buffer_of[static_cast<std::size_t>(id)];
    return b < 0 ? nullptr : &buffers[static_cast<std::size_t>(b)];
  }
  // Where the value's elements lie in its buffer. That is what the program says, except in parts of
  // an assembly. nullopt: a view that has no strides there.
  std::optional<Layout> layout_of(const Program& program, ValueId id) const;
};

// O(nodes + values). Donation: an output takes an input's buffer when the op allows it, the input
// covers the whole buffer and has no later reader; an input that is a leaf is donated only if the
// result becomes the leaf's new value. An assembly takes over a buffer if one node writes all parts
// and may write each of them over an input that lies at the same place.
BufferPlan plan_buffers(const Program& program);

// Updates whose new value does not end up in the leaf's own buffer: they need an `assign`.
std::vector<Update> updates_out_of_place(const Program& program, const BufferPlan& buffer_plan);

}  // namespace tracestep
