// Does a step fit into a device's memory, what is the least change that makes it fit, and how large
// a batch or context would? All by predicted peaks; nothing runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lab/memory/search.h"
#include "lab/memory/tables.h"
#include "lab/report/fields.h"

namespace tracestep {

// In the tables below, `times` predicts how long each step takes; nullptr: no times are shown.

// Whether a peak is within the limit, and leaves the margin free.
enum class FitVerdict : std::uint8_t { kFits, kTight, kDoesNotFit };
FitVerdict fit_verdict(std::int64_t peak_bytes, const FitQuestion& question);

// One row: the step as asked for, its peak, the limit, what is to spare or missing, and the command
// that runs it.
Table fit_table(const MemoryCell& cell, const FitQuestion& question);

// The step at the longest context, of the powers of two from 64 on, whose predicted peak is within
// the limit; nothing where 64 is beyond it.
std::optional<RunSpec> at_largest_context(RunSpec step, const DeviceTraits& traits,
                                          std::int64_t limit_bytes);

// What --largest varies.
enum class Growth : std::uint8_t { kBatch, kContext };
inline constexpr Growth kAllGrowths[] = {Growth::kBatch, Growth::kContext};
std::string_view name_of(Growth growth);

// Rows: the step as asked for, and with changes that keep the task (flash attention, recomputation,
// both, and autocast besides), each with the largest batch, or context in steps of 64 tokens, that
// fits, its peak and the command. Empty cells: not even the smallest fits. A note names the rows
// whose size ends where commands do (1 Mi) and not where the memory does.
Table largest_table(const RunSpec& step, const DeviceTraits& traits, std::int64_t limit_bytes,
                    Growth growth, const Predictor* times = nullptr);

// Adds the columns of a predicted time for the step of each row, which `step_of` finds (nullptr:
// there is none); no columns without `times`.
template <class Row, class StepOf>
void add_times(Fields<Row>& fields, const DeviceTraits& traits, const Predictor* times,
               StepOf step_of) {
  if (times == nullptr) return;
  const auto time_of = [=](const Row& row) {
    return predict_run(*step_of(row), traits, *times).time.ms;
  };
  fields.add(real_column("predicted_ms", "predicted time", "ms", -1, "of a step"),
             [=](const Row& row) { return step_of(row) ? Json(time_of(row)) : Json(); });
  fields.add(real_column("tokens_per_s", "tokens/s", "", 0, "at that time"), [=](const Row& row) {
    const RunSpec* step = step_of(row);
    if (step == nullptr) return Json();
    return Json(1e3 * static_cast<double>(step->shape.batch * step->shape.context) / time_of(row));
  });
}

// The flags that say which step it is, where it differs from the default of every command; on a CPU
// with its threads, on which the peak depends.
std::string flags_of(const RunSpec& step);
// "tracestep bench --size small … --recompute blocks": the command that times this step.
std::string command_of(const RunSpec& step);

}  // namespace tracestep
