// Computes a step's batch in parts, micro-batches, that add up their gradients, as `train
// --accumulate` does, so that only the activations of one part are held.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/program.h"
#include "passes/pipeline.h"
#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep {

// The most micro-batches of which one program is made; training runs the programs of more one by
// one.
inline constexpr std::int64_t kMostInOneProgram = 256;

// Makes what runs of a program: program_for() of a device, or of its traits.
using MakesProgram =
    std::function<PipelineResult(const Program&, const RunSpec&, const PassContext&)>;

// One program of a step in `step.accumulate` micro-batches of `step.shape`: forward and backward of
// each, whose gradients the products of the next add to, then sums over ranks and the update. Its
// leaves are those of the parts, which hold nothing else from one micro-batch to the next but
// narrow copies and codes of weights: these are made once. Inputs with axes are those of all
// micro-batches, one behind the other (with ranks, those of each replica), "loss" is the sum of
// their shares of the mean. `context`: of all parts. The reports are those of the repeated
// micro-batch. Error{kUsage} for more than kMostInOneProgram; BudgetNotMet of the part that
// needs most.
PipelineResult step_of_micro_batches(const RunSpec& step, const PassContext& context,
                                     const MakesProgram& make);

// A program of a step, and how often one step runs it.
struct StepPart {
  Program program;
  std::int64_t runs = 1;
};

// The programs of a training step in `parts` that divide each replica's share of its batch: forward
// and backward for the first, and for the others, which add to its gradients; then the sums over
// ranks and the update, which also tells the gradients' norm and leaves out one that is not finite,
// as in training. As many as one program is made of are one part. Errors: those of step_program().
std::vector<StepPart> parts_of_step(const RunSpec& step, std::int64_t parts,
                                    const DeviceTraits& traits);

// The pieces of these: the run of a micro-batch whose gradients are of that kind, its program
// before passes, and the program that updates `leaves`, those of the micro-batches, with the
// gradients' norm. `parts`: micro-batches of a step.
RunSpec micro_batch_of(const RunSpec& step, GradientKind kind);
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
