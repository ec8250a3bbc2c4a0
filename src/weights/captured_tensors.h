// The tensors that belong to a captured module (captured/captured_model.h): its weights, constants
// and example inputs, from safetensors files in its folder. Names, shapes and dtypes must be those
// of the program's leaves.
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

// Sets the constants of the run's captured module; does nothing for other models. If the folder has
// no weights, constants that are frozen weights are drawn from the run's seed. Throws as
// load_captured_weights().
void load_captured_constants(const WholeTensors& to, const RunSpec& run);

// Sets weights and constants. The weights are those of `init`; if that is nullptr, those in the
// folder, or drawn from the run's seed if it has none.
void start_captured(const WholeTensors& to, const RunSpec& run, const SavedTensors* init = nullptr);

// Writes the parameters as load_state_dict(strict=True) of the module takes them: under its names,
// tied ones too, with frozen weights and the buffers that it saves. When a tensor is infinite or
// NaN, nothing is written, and it is returned. Every process must call this; the first one writes.
std::optional<NotFinite> save_captured(const WholeTensors& from, const CapturedModel& model,
                                       const std::filesystem::path& path);

// Values for the inputs of a captured program, by name; only those that `program` has. They come
// from `file`, which must have all of them, or, if `file` is empty, from the folder. Inputs that
// the folder lacks are made up: tokens are drawn from the run's seed, numbers are near 0, and flags
// are off. `draws`: tokens and targets are drawn in any case. The values are for all replicas of
// the run.
std::map<std::string, HostTensor> captured_inputs(const RunSpec& run, const Program& program,
                                                  const std::filesystem::path& file = {},
                                                  bool draws = false);

// Returns the input that dropout in batch `number` of a run depends on: for each replica, the index
// of its batch among the batches of all replicas, plus 2^40 times the run's seed. i64 [replicas].
// If a step has micro-batches, `number` counts steps, and each replica has one for each of them.
HostTensor batch_numbers(const RunSpec& run, std::int64_t number);

// Sets the inputs of a captured module for a step without data; tokens are drawn from a seed.
void set_captured_inputs(Executor& executor, const RunSpec& run);

}  // namespace tracestep
