// Computes a step's batch in parts, micro-batches, that add up their gradients, as `train
// --accumulate` does, so that only the activations of one part are held.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/program.h"
#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep {

// A program of a step, and how often one step runs it.
struct StepPart {
  Program program;
  std::int64_t runs = 1;
};

// The programs of a training step in `parts` that divide each replica's share of its batch: forward
// and backward for the first, and for the others, which add to its gradients; then the sums over
// ranks and the update, which also tells the gradients' norm and leaves out one that is not finite,
// as in training. In one part: the step's own program. Errors: those of step_program().
std::vector<StepPart> parts_of_step(const RunSpec& step, std::int64_t parts,
                                    const DeviceTraits& traits);

// The pieces of parts_of_step(): the run of a micro-batch whose gradients are of that kind, its
// program before passes, and the program that updates `leaves`, those of the micro-batches.
RunSpec micro_batch_of(const RunSpec& step, std::int64_t parts, GradientKind kind);
Program micro_batch_loss(const RunSpec& micro_batch, std::int64_t parts);
Program update_of_micro_batches(const RunSpec& step, std::span<const Value> leaves,
                                const DeviceTraits& traits);

// Device bytes of weights and states, where leaves of one name count once; and of all inputs.
std::int64_t kept_bytes(std::span<const Value> leaves);
std::int64_t input_bytes(std::span<const Value> leaves);
// Bytes of the leaves that live in the host's memory.
std::int64_t host_bytes(std::span<const Value> leaves);
// The leaves of the program, in its order.
std::vector<Value> leaves_of(const Program& program);

// Weights and states in the device's memory, which the programs share.
std::int64_t kept_bytes(std::span<const StepPart> parts);
// Device bytes that stay occupied all the time: these, and the inputs of each program.
std::int64_t leaf_bytes(std::span<const StepPart> parts);
// The device's bytes at the fullest moment: leaves of all programs are there all the time, and so
// are the arenas of executors that have them.
std::int64_t predicted_peak_bytes(ExecutorKind kind, std::span<const StepPart> parts,
                                  const DeviceTraits& traits);

}  // namespace tracestep
