// Reads a memory snapshot of PyTorch's CUDA allocator (torch.cuda.memory._dump_snapshot), or one of
// ours: who holds what at the peak, what is reserved and unused, and which request failed if memory
// ran out. Nothing in the file is executed: it is read as plain data (lab/report/unpickle.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lab/pytorch/allocation_list.h"
#include "lab/report/table.h"

namespace tracestep {

// The bytes that one line of the user's program, or of PyTorch, holds.
struct SnapshotHolder {
  // The line, such as "train.py:84 forward"; empty if the file records no frames.
  std::string site;
  std::string category;  // The category, if the file has it.
  std::int64_t bytes = 0, blocks = 0;
};

// Bytes that are reserved and not allocated at a moment.
struct SnapshotUnused {
  std::int64_t bytes = 0, pieces = 0, largest_bytes = 0;
  std::int64_t releasable_bytes = 0;  // The unused bytes in segments that have no allocated block.
};

struct SnapshotOutOfMemory {
  std::int64_t asked_bytes = 0, device_free_bytes = 0;
  std::int64_t allocated_bytes = 0, reserved_bytes = 0;
  SnapshotUnused unused = {};
  std::string site;

  // Suggests what would have helped, as far as the numbers show it.
  std::string remedy() const;
};

// A moment of the time line.
struct SnapshotMoment {
  std::int64_t event = 0, time_us = 0;
  std::int64_t allocated_bytes = 0, reserved_bytes = 0;
  // The bytes of each of SnapshotFacts::holders, as far as they are listed.
  std::vector<std::int64_t> held = {};
};

struct SnapshotFacts {
  std::string file;
  std::int64_t device = 0, events = 0;
  // True: the recording was a ring buffer that overflowed, so old events are missing.
  bool lost_events = false;
  // True: more is allocated than reserved, so the file lacks events of segments, and the reserved
  // bytes before its end are not known.
  bool lacks_segments = false;
  std::int64_t peak_bytes = 0, peak_event = 0;
  std::int64_t reserved_at_peak_bytes = 0, most_reserved_bytes = 0;
  std::int64_t allocated_at_end_bytes = 0, reserved_at_end_bytes = 0;
  std::int64_t segments = 0;
  SnapshotUnused unused_at_peak, unused_at_end;
  bool is_expandable = false;
  std::vector<SnapshotHolder> holders;  // The holders at the peak, the largest first.
  // The number of blocks for each size in bytes.
  std::map<std::int64_t, std::int64_t> sizes_at_peak;
  std::vector<SnapshotOutOfMemory> out_of_memory;
  std::vector<SnapshotMoment> moments;  // A few hundred moments at most, in order.
  AllocationList list;  // Allocations of what existed before the first event, then all events.
};

// Reads what happened on the device with the most events; if no device has any, on the one with the
// most reserved bytes. Throws Error{kInput} for a file that is no snapshot or is larger than 2 GiB.
SnapshotFacts read_snapshot_facts(const std::filesystem::path& path);

// The tables "snapshot" (one row), "holders", "unused", "out_of_memory" and "timeline".
std::vector<Table> snapshot_tables(const SnapshotFacts& facts);

// The table "stack@the recording": allocated bytes at each event, by the holders that have most of
// the peak.
Table snapshot_stack(const SnapshotFacts& facts);

// The table "holder_changes": the holders of two snapshots side by side.
Table snapshot_difference(const SnapshotFacts& a, const SnapshotFacts& b);

}  // namespace tracestep
