// The changes that may make a step fit, and what each costs besides time.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep {

// What a change costs besides time. The severity of a set is that of its severest change.
enum class ChangeSeverity : std::uint8_t {
  kSameNumbers,     // updates inside backward, recomputation, the optimizer in the host's memory
  kOtherRoundings,  // sums in another order: fused ops, flash attention, the loss in chunks
  kOtherPrecision,  // products in bfloat16
  kOtherStates,     // AdamW's states in bfloat16
  kOtherTask,       // a smaller batch, everything in bfloat16, a shorter context
};
std::string_view name_of(ChangeSeverity severity);  // "same numbers", "another task"

// A value that a field may take instead of the one asked for.
struct StepChange {
  ChangeSeverity severity;
  std::function<void(RunSpec&)> apply;
};
// The values of one field; none of them: as asked for.
using Choices = std::vector<StepChange>;

// The fields that may change without another task, each with its choices for all layers alike.
std::vector<Choices> choices_of(const RunSpec& step, const DeviceTraits& traits);

// Whether everything is stored narrow.
bool is_pure(const Precision& precision);
// Whether the step computes again what a budget for its peak asks for.
bool has_budget(const RunSpec& step);

}  // namespace tracestep
