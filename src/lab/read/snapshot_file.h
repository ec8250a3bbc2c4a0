// A memory snapshot of PyTorch's CUDA allocator (torch.cuda.memory._dump_snapshot), or one of ours:
// who holds what at the peak, what is reserved and unused, and what was asked for where memory ran
// out. Nothing in the file is executed: it is read as plain data (lab/report/unpickle.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lab/pytorch/allocation_list.h"
#include "lab/report/table.h"

namespace tracestep {

// Bytes that one line of the user's program, or one of PyTorch's, holds.
struct SnapshotHolder {
  std::string site;      // "train.py:84 forward"; "" where the file records no frames
  std::string category;  // where the file says it
  std::int64_t bytes = 0, blocks = 0;
};

// Bytes that are reserved and not allocated at a moment.
struct SnapshotUnused {
  std::int64_t bytes = 0, pieces = 0, largest_bytes = 0;
  std::int64_t releasable_bytes = 0;  // in segments without a block
};

struct SnapshotOutOfMemory {
  std::int64_t asked_bytes = 0, device_free_bytes = 0;
  std::int64_t allocated_bytes = 0, reserved_bytes = 0;
  SnapshotUnused unused = {};
  std::string site;

  // Names what would have helped, as far as the numbers tell.
  std::string remedy() const;
};

// A moment of the time line.
struct SnapshotMoment {
  std::int64_t event = 0, time_us = 0;
  std::int64_t allocated_bytes = 0, reserved_bytes = 0;
  std::vector<std::int64_t> held = {};  // by the first of SnapshotFacts::holders
};

struct SnapshotFacts {
  std::string file;
  std::int64_t device = 0, events = 0;
  bool lost_events = false;  // the recording was a ring that ran over
  // More was allocated than reserved, so that the file lacks events of segments: what was reserved
  // before its end is not known.
  bool lacks_segments = false;
  std::int64_t peak_bytes = 0, peak_event = 0;
  std::int64_t reserved_at_peak_bytes = 0, most_reserved_bytes = 0;
  std::int64_t allocated_at_end_bytes = 0, reserved_at_end_bytes = 0;
  std::int64_t segments = 0;
  SnapshotUnused unused_at_peak, unused_at_end;
  bool is_expandable = false;
  std::vector<SnapshotHolder> holders;                 // at the peak, the largest first
  std::map<std::int64_t, std::int64_t> sizes_at_peak;  // how many blocks have these bytes
  std::vector<SnapshotOutOfMemory> out_of_memory;
  std::vector<SnapshotMoment> moments;  // at most some hundred, in order
  AllocationList list;                  // what was there before the first event, then all events
};

// Reads what happened on the device with the most events, or the most reserved bytes where none has
// any. Errors: kInput for a file that is no snapshot, or larger than 2 GiB.
SnapshotFacts read_snapshot_facts(const std::filesystem::path& path);

// "snapshot", one row; "holders"; "unused"; "out_of_memory"; "timeline".
std::vector<Table> snapshot_tables(const SnapshotFacts& facts);

// "stack@the recording": allocated bytes by the holders that have most of the peak, event by event.
Table snapshot_stack(const SnapshotFacts& facts);

// The holders of two snapshots beside each other: "holder_changes".
Table snapshot_difference(const SnapshotFacts& a, const SnapshotFacts& b);

}  // namespace tracestep
