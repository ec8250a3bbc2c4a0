// The defaults of a step that is planned for a GPU: what people train with there. A step that runs
// has those of its command.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/precision.h"
#include "spec/run_grid.h"

namespace tracestep {

// The devices that a step is planned for.
struct PlannedFor {
  std::int64_t devices = 1;                                  // devices that share the step's batch
  std::function<bool(const Precision&)> multiplies_in = {};  // empty: in every precision
};

// True if plans for a GPU have a default of their own for the field.
bool is_planned(const RunField& field);

// The default batch, in sequences, for a step that so many devices share.
std::int64_t planned_batch(std::int64_t devices);

// Gives such fields the planned defaults where they have no value of their own: on every device
// with memory of its own. Returns the fields, in the order of the table.
std::vector<const RunField*> assume_planned(RunGrid& grid, const PlannedFor& planned);

// "--precision bf16 --batch 4": the flags of these fields with their values in the runs.
std::string flags_of(std::span<const RunField* const> fields, std::span<const RunSpec> runs);

}  // namespace tracestep
