// BufferPlan: which buffer every value lives in, and which nodes the buffer lives between. Views
// share the buffer of their base; a donated input passes its buffer to an output. Executors
// allocate and free by this plan, and predictions count its bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/category.h"
#include "ir/program.h"

namespace tracestep {

struct Buffer {
  ValueId owner = kNoValue;  // the value that first lives in it
  std::int64_t bytes = 0;
  NodeId first = kNoNode;  // the node it is allocated for; kNoNode: a leaf, always alive
  NodeId last = kNoNode;   // the last node that reads it; node count: alive at the end
  Category category = Category::kTemporary;
};

struct BufferPlan {
  std::vector<Buffer> buffers;
  std::vector<int> buffer_of;                  // by value; -1: never read, not allocated
  std::vector<std::vector<int>> allocated_at;  // by node: buffers it needs, in order
  std::vector<std::vector<int>> freed_after;   // by node: buffers without later readers
  std::vector<bool> runs;                      // by node: false for views

  const Buffer* buffer(ValueId id) const {
    const int b = buffer_of[static_cast<std::size_t>(id)];
    return b < 0 ? nullptr : &buffers[static_cast<std::size_t>(b)];
  }
};

// O(nodes + values). Donation: an output takes an input's buffer when the op allows it, the input
// covers the whole buffer and has no later reader; an input that is a leaf is donated only if the
// result becomes the leaf's new value.
BufferPlan plan_buffers(const Program& program);

// Updates whose new value does not end up in the leaf's own buffer: they need an `assign`.
std::vector<Update> updates_out_of_place(const Program& program, const BufferPlan& buffer_plan);

}  // namespace tracestep
