// Shows what PyTorch would take for a step, as tables and as a snapshot. The sentence, charts and
// tables of `memory --as pytorch` and of `fit` read these rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/pytorch/ways.h"
#include "lab/report/table.h"
#include "lab/snapshots/snapshot.h"

namespace tracestep {

struct PytorchQuestion {
  AllocationList list;
  AllocatorSettings settings;
  std::string settings_text;  // The settings as the user gave them.
  PytorchCard card;
  std::int64_t ours_bytes = 0;  // The peak of our own program for the step; 0: not known.
};

// The table "pytorch" of one row: peak, reserved bytes, what the card needs, where memory runs out,
// and our own peak.
Table pytorch_table(const PytorchQuestion& question);
// The table "pytorch_ways": the replay of the step as it is and with each change that would help.
Table pytorch_ways_table(const PytorchQuestion& question);
// The tables "pytorch_holders", with modules and source lines at the peak, and "pytorch_timeline",
// with bytes over events.
std::vector<Table> pytorch_detail_tables(const PytorchQuestion& question);

inline constexpr const char* kPytorchTables[] = {"pytorch", "pytorch_ways", "pytorch_holders",
                                                 "pytorch_timeline"};

// The step in the form of PyTorch's own snapshot; the frames of a block are its line, module, op
// and part of the model.
MemorySnapshot pytorch_snapshot(const PytorchQuestion& question);

}  // namespace tracestep
