// Makes the program of a run from its specification.
#pragma once

#include <optional>

#include "base/error.h"
#include "passes/pipeline.h"
#include "run/run_spec.h"
#include "runtime/device.h"

namespace tracestep {

// The batch that the ranks of one replica share. Throws Error{kUsage} if the replicas cannot have
// equal shares, or if the ranks of a replica cannot divide the model.
BatchShape rank_shape(const RunSpec& spec);
// The error that check_run() or rank_shape() would throw, for callers that try many runs; nullopt:
// none.
std::optional<Error> refusal_of(const RunSpec& spec);

// The forward program for the spec's mode, before passes: logits for inference, else the loss on
// given targets. With ranks, it computes one replica's share of the batch, and in a step its share
// of the loss.
Program forward_program(const RunSpec& spec);
// Returns the program of the loss with these options; its weights always have the spec's dtype.
Program loss_program(const RunSpec& spec, LossOptions options = {});
// Returns the decoding program, `count` tokens per run, for texts of at most the spec's context.
Program decode_program(const RunSpec& spec, std::int64_t count = 1);
// A program that decodes greedily: it takes the most likely token, which the next run reads on the
// device.
Program greedy_program(const RunSpec& spec);

// True if some of the model's weights are not trained.
inline bool trains_part(const RunSpec& spec) {
  return spec.lora.is_on() || spec.frozen.any();
}
// The number of micro-batches of a run; 1 if it is no step.
inline std::int64_t micro_batches_of(const RunSpec& spec) {
  return spec.mode == Mode::kStep ? spec.accumulate : 1;
}
// The number of tokens in all micro-batches of all ranks.
inline std::int64_t tokens_of_step(const RunSpec& spec) {
  return micro_batches_of(spec) * spec.shape.batch * spec.shape.context;
}
// The number of elements in the weights that the run trains.
std::int64_t trained_parameters(const RunSpec& spec);
// The FLOPs of matrix products that the model needs: those of its weights and attention in forward,
// and with backward three times as many, minus the weight gradients of weights that are not
// trained. Adapters are left out.
double needed_flops(const RunSpec& spec);

// The program that moves the last tokens in the caches of layers with an attention window to their
// beginning.
Program slide_program(const RunSpec& spec);

// Runs all passes on `forward`, for `device`'s kernels. The traits and kernels in `context` are
// replaced by the device's. A device without float32 (the reference) gets the program in float64,
// including parameters, states and rates.
Program program_for(const Program& forward, const RunSpec& spec, const Device& device,
                    const PassContext& context = {});
// Runs all passes for a device of which only the traits are known (planning/needs.h: its kernels).
Program program_for(const Program& forward, const RunSpec& spec, const DeviceTraits& traits,
                    const PassContext& context = {});
// The program of the spec after all passes, for `device`'s kernels; for a step with micro-batches,
// the one that computes all of them (spec/micro_batches.h).
Program step_program(const RunSpec& spec, const Device& device);
// Returns the program of the spec after all passes, for a device known by its traits only.
Program step_program(const RunSpec& spec, const DeviceTraits& traits = {});
// Makes the program that step_program() returns, together with a report of each pass.
PipelineResult step_passes(const RunSpec& spec, const Device& device,
                           const PassContext& context = {});
PipelineResult step_passes(const RunSpec& spec, const DeviceTraits& traits);

}  // namespace tracestep
