// The allocations in a memory snapshot, ours or PyTorch's, as pickle or as JSON, with what the file
// says of them. Nothing else is kept, so that a snapshot takes little more memory than its file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

// The facts that a file has on an allocation beside its size; empty texts: none.
struct TraceLabel {
  std::string category;  // "activation", as our own snapshots have it
  std::string scope;     // name of the innermost frame: "layers.2.attn.softmax"
  std::string op;        // name of the one around it: "div"
  friend auto operator<=>(const TraceLabel&, const TraceLabel&) = default;
};

struct TraceEvent {
  bool is_alloc = true;     // false: the block is free from here on
  std::int32_t label = -1;  // of an allocation, in MemoryTrace::labels; -1: none
  std::int64_t address = 0, bytes = 0;
};

struct MemoryTrace {
  std::vector<std::int64_t> there_before;  // bytes of blocks that no event allocates
  std::vector<TraceEvent> events;          // of the first device that has any
  std::vector<TraceLabel> labels;
};

// Errors: kInput for data in neither form, without events and blocks, or with addresses beyond 64
// bits.
MemoryTrace read_trace(std::string_view bytes, const std::string& where);
// Errors: as above, and for a file of more than 1 GiB.
MemoryTrace read_trace_file(const std::filesystem::path& path);

}  // namespace tracestep
