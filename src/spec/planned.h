// The defaults of a step that is planned for a GPU: the settings that people usually train with
// there. A step that is run has its command's defaults.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/precision.h"
#include "spec/run_grid.h"

namespace tracestep {

// The devices that a step is planned for.
struct PlannedFor {
  std::int64_t devices = 1;  // How many devices share the step's batch.
  // Whether the devices multiply in a precision; empty: in every one.
  std::function<bool(const Precision&)> multiplies_in = {};
};

// True if plans for a GPU have a default of their own for the field.
bool is_planned(const RunField& field);

// The default batch, in sequences, of a step that this many devices share.
std::int64_t planned_batch(std::int64_t devices);

// Gives the fields of is_planned() that have no value of their own their planned defaults, if the
// device has its own memory. Returns the fields that were set, in the order of their table.
std::vector<const RunField*> assume_planned(RunGrid& grid, const PlannedFor& planned);

// The flags of these fields with their values in the runs: "--precision bf16 --batch 4".
std::string flags_of(std::span<const RunField* const> fields, std::span<const RunSpec> runs);
// Records in `environment` what is assumed about these runs, by field, and adds a note below a
// table with the flags that change it.
void say_assumed(std::span<const RunField* const> fields, std::span<const RunSpec> runs,
                 Json& environment, std::vector<std::string>& notes);

}  // namespace tracestep
