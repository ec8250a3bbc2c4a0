// Shows what PyTorch would take for a step, as tables and a snapshot: sentence, charts and the
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
  std::string settings_text;  // as given
  PytorchCard card;
  std::int64_t ours_bytes = 0;  // the peak of our own program of the step; 0: unknown
};

// "pytorch", one row: peak, reserved, what the card needs, where memory runs out, ours beside it.
Table pytorch_table(const PytorchQuestion& question);
// "pytorch_ways": the step as it is and with each change that would help, replayed.
Table pytorch_ways_table(const PytorchQuestion& question);
// "pytorch_holders": modules and lines at the peak; "pytorch_timeline": bytes over events.
std::vector<Table> pytorch_detail_tables(const PytorchQuestion& question);

inline constexpr const char* kPytorchTables[] = {"pytorch", "pytorch_ways", "pytorch_holders",
                                                 "pytorch_timeline"};

// The step as PyTorch's own recording would show it; its frames are line, module, op and part.
MemorySnapshot pytorch_snapshot(const PytorchQuestion& question);

}  // namespace tracestep
