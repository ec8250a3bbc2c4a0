// The tensors beside a captured module (captured/captured_model.h): its weights, its constants and
// the inputs of its example, from the folder's safetensors files. Each is checked against the
// program: names, shapes and dtypes are those of its leaves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "captured/captured_model.h"
#include "exec/executor.h"
#include "run/run_spec.h"
#include "weights/whole_tensors.h"

namespace tracestep {

// True if the folder has the module's weights; else they are drawn from a seed.
bool has_captured_weights(const CapturedModel& model);

// Sets the parameters. Errors: kInput naming the file and the tensor that is missing, has another
// type, or is none of the module.
void load_captured_weights(const WholeTensors& to, const CapturedModel& model,
                           const SavedTensors& from);

// Sets the constants of the module in `run`; nothing for other models. Those that are frozen
// weights are drawn from the run's seed where the folder has no weights. Errors as above.
void load_captured_constants(const WholeTensors& to, const RunSpec& run);

// Both: weights of `init`; nullptr: of the folder, and where that has none drawn from the run's
// seed.
void start_captured(const WholeTensors& to, const RunSpec& run, const SavedTensors* init = nullptr);

// Writes the parameters as load_state_dict(strict=True) of the module takes them: under its names,
// tied ones too, with frozen weights and the buffers that it saves. When a tensor is infinite or
// NaN, nothing is written, and it is returned. Every process must call this; the first one writes.
std::optional<NotFinite> save_captured(const WholeTensors& from, const CapturedModel& model,
                                       const std::filesystem::path& path);

// Values for the inputs of a captured program that `program` has, by name: those of `file`, which
// must have all of them; where it is empty those of the folder, and for inputs without any, made
// ones: tokens drawn from the run's seed, numbers around 0, no flag set. `draws`: tokens and
// targets are drawn in any case. For all replicas of the run.
std::map<std::string, HostTensor> captured_inputs(const RunSpec& run, const Program& program,
                                                  const std::filesystem::path& file = {},
                                                  bool draws = false);

// Dropout in batch `number` of a run depends on this, for each replica: its number among the
// batches of all, and the run's seed. i64 [replicas]; where a step has micro-batches, `number` is
// the step's, and each replica has as many numbers.
HostTensor batch_numbers(const RunSpec& run, std::int64_t number);

// The inputs of a made step, with drawn tokens.
void set_captured_inputs(Executor& executor, const RunSpec& run);

}  // namespace tracestep
