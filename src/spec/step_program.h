// From the specification of a run to the program that runs.
#pragma once

#include <optional>

#include "base/error.h"
#include "passes/pipeline.h"
#include "run/run_spec.h"
#include "runtime/device.h"

namespace tracestep {

// The batch of one rank, which the ranks of a replica share. Error{kUsage} when the replicas cannot
// have equal shares of it, or the ranks of one cannot divide the model.
BatchShape rank_shape(const RunSpec& spec);
// The error of check_run() or rank_shape(), for who tries many runs; nullopt: there is none.
std::optional<Error> refusal_of(const RunSpec& spec);

// The forward program of the spec's mode: logits for inference, else the loss on given targets.
// With ranks, one replica's share of the batch, and in a step of its loss.
Program forward_program(const RunSpec& spec);
// The loss with these options; the weights' dtype is always that of the spec.
Program loss_program(const RunSpec& spec, LossOptions options = {});
// The decoding program, one token per run, for texts of at most the spec's context.
Program decode_program(const RunSpec& spec, std::int64_t count = 1);
// Decodes greedily: the program takes the most likely token, and the next run reads it on device.
Program greedy_program(const RunSpec& spec);

// True if some of the model's weights are not trained.
inline bool trains_part(const RunSpec& spec) {
  return spec.lora.is_on() || spec.frozen.any();
}
// Micro-batches of a run: of a step, as many as it has; of anything else one.
inline std::int64_t micro_batches_of(const RunSpec& spec) {
  return spec.mode == Mode::kStep ? spec.accumulate : 1;
}
// Tokens of all micro-batches and ranks.
inline std::int64_t tokens_of_step(const RunSpec& spec) {
  return micro_batches_of(spec) * spec.shape.batch * spec.shape.context;
}
// Elements of the weights that the run trains.
std::int64_t trained_parameters(const RunSpec& spec);
// FLOPs of the products that the model's weights and attention need: of forward, and with backward
// three times as many, less those of the gradients of weights that are not trained. Those of
// adapters are left out.
double needed_flops(const RunSpec& spec);

// Moves the last tokens of the caches of layers with a window to their beginning.
Program slide_program(const RunSpec& spec);

// `forward` after all passes, for `device`'s kernels; of `context` its traits and kernels are
// filled in. A device that has no float32 (the reference) gets the same program in float64:
// parameters, states and rates as well.
Program program_for(const Program& forward, const RunSpec& spec, const Device& device,
                    const PassContext& context = {});
// As above without a device: planning/needs.h says which ops a kind of device has kernels for.
Program program_for(const Program& forward, const RunSpec& spec, const DeviceTraits& traits,
                    const PassContext& context = {});
// The program of the spec after all passes, for `device`'s kernels; of a step in micro-batches,
// that of all of them (spec/micro_batches.h).
Program step_program(const RunSpec& spec, const Device& device);
// As above, by a device's traits alone.
Program step_program(const RunSpec& spec, const DeviceTraits& traits = {});
// These also say what each pass did.
PipelineResult step_passes(const RunSpec& spec, const Device& device,
                           const PassContext& context = {});
PipelineResult step_passes(const RunSpec& spec, const DeviceTraits& traits);

}  // namespace tracestep
