// Reads the allocations in a memory snapshot, ours or PyTorch's, as pickle or JSON, with what the
// file says about each. Nothing else is kept, so a snapshot takes little more memory than its file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

// What a file says about an allocation besides its size; empty texts: nothing.
struct TraceLabel {
  std::string category;  // The category as our own snapshots have it: "activation".
  std::string scope;     // The name of the innermost frame: "layers.2.attn.softmax".
  std::string op;        // The name of the frame around it: "div".
  friend auto operator<=>(const TraceLabel&, const TraceLabel&) = default;
};

struct AllocatorEvent {
  bool is_alloc = true;     // True for an allocation, false for the freeing of a block.
  std::int32_t label = -1;  // For an allocation, an index into MemoryTrace::labels; -1: none.
  std::int64_t address = 0, bytes = 0;
};

struct MemoryTrace {
  std::vector<std::int64_t> there_before;  // The bytes of blocks that exist before the first event.
  std::vector<AllocatorEvent> events;      // The events of the first device that has any.
  std::vector<TraceLabel> labels;
};

// Reads a snapshot. Throws Error{kInput} for data in neither form, without events and blocks, or
// with addresses beyond 64 bits.
MemoryTrace read_trace(std::string_view bytes, const std::string& where);
// Reads the snapshot in a file by read_trace(). Throws Error{kInput} also if it exceeds 1 GiB.
MemoryTrace read_trace_file(const std::filesystem::path& path);

}  // namespace tracestep
