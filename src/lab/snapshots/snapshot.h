// A memory snapshot in the format of PyTorch's tools: the contents of the segments at the end, and
// all events before. It is written as a pickle (for memory_viz and `pickle.load`) and as JSON with
// the same structure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lab/memory/run.h"

namespace tracestep {

// A frame of a call stack, in which scopes stand for functions, the innermost first:
// "layers.7.attn.softmax" in the source file that made the request.
struct SnapshotFrame {
  std::string file, name;
  int line = 0;
  friend auto operator<=>(const SnapshotFrame&, const SnapshotFrame&) = default;
};

struct SnapshotBlock {
  std::int64_t address = 0, bytes = 0, requested_bytes = 0;
  bool is_active = false;
  int stack = 0;
};

// A segment with its blocks, which cover it in the order of addresses, including free ones.
struct SnapshotSegment {
  std::int64_t address = 0, bytes = 0;
  bool is_small = false;
  std::vector<SnapshotBlock> blocks;
};

struct SnapshotEvent {
  std::string action = {};   // "alloc", "free_requested", "segment_alloc", "oom", ...
  std::int64_t address = 0;  // The address; for "oom", the bytes that the device still has free.
  std::int64_t bytes = 0;
  std::int64_t time_us = 0;  // since 1970
  int stack = 0;
  std::string category = {};  // empty: none
};

// A mark on the time line: the start or end of a phase.
struct SnapshotAnnotation {
  std::string name;
  bool is_start = false;
  std::int64_t time_us = 0;
};

struct MemorySnapshot {
  int device = 0;
  std::vector<std::vector<SnapshotFrame>> stacks = {{}};  // Call stacks; the first one is empty.
  std::vector<SnapshotSegment> segments;
  std::vector<SnapshotEvent> events;
  std::vector<SnapshotAnnotation> annotations;
  std::vector<std::pair<std::string, std::string>> settings;
  std::int64_t left_out = 0;  // The number of events that --max-entries dropped.
};

// Writes the snapshot as pickle protocol 2, with plain data only. Stacks are shared objects; events
// and blocks are not, because the viewer modifies them.
std::string pickle_of(const MemorySnapshot& snapshot);
// Writes the same content as JSON text; pairs are lists of two.
std::string json_of(const MemorySnapshot& snapshot);

// Checks what the viewer assumes, by replaying the events backwards from the segments: blocks tile
// their segments, every event lies in a segment that exists at that moment, every free has its
// alloc, blocks live at the end are active. Returns the first broken rule, or an empty text.
std::string broken_rule(const MemorySnapshot& snapshot);

// The snapshot of a run. Every block has its model path, op, source line and phase as the frames of
// a call stack. Weights and states appear as allocated during the recording, so that the viewer
// colours them by category. `max_entries`: only the newest events are kept; 0: all. `device`: the
// index in the viewer's menu.
MemorySnapshot snapshot_of(const MemoryRun& run, std::size_t max_entries = 0, int device = 0);

}  // namespace tracestep
