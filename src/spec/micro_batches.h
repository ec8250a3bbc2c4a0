// Computes a step's batch in micro-batches that accumulate their gradients, as `train --accumulate`
// does, so that only the activations of one are held at a time.
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

// The most micro-batches that are made into one program; with more, training runs the program of
// each one by one.
inline constexpr std::int64_t kMostInOneProgram = 256;

// A function that runs all passes on a program: program_for() of a device, or of its traits.
using MakesProgram =
    std::function<PipelineResult(const Program&, const RunSpec&, const PassContext&)>;

// One program for a step with `step.accumulate` micro-batches of `step.shape`: forward and backward
// of each, with gradients added up by the products of the next one, then sums over ranks and the
// update. Its leaves are those of the parts; between micro-batches only narrow copies and codes of
// weights are kept, which are made once. Inputs with axes hold those of all micro-batches one after
// the other (with ranks, of each replica), and "loss" is the sum of their shares of the mean.
// `context`, with the traits of the device, applies to all parts; the reports are those of the
// repeated micro-batch. A memory budget is for the peak of the whole step. Throws Error{kUsage} for
// more than kMostInOneProgram, and BudgetNotMet.
PipelineResult step_of_micro_batches(const RunSpec& step, const PassContext& context,
                                     const MakesProgram& make);

// A program of a step, and how often a step runs it.
struct StepPart {
  Program program;
  std::int64_t runs = 1;
};

// The programs of a step with micro-batches, to be run one after the other: the first micro-batch,
// the one for all others, which adds to the gradients, and the update. A memory budget is for all
// of them together. Throws BudgetNotMet.
std::vector<StepPart> separate_micro_batches(const RunSpec& step, const PassContext& context,
                                             const MakesProgram& make);

// The programs of a training step whose batch (each replica's share) is divided into `parts`
// micro-batches: forward and backward of the first; the same for the others, which add to its
// gradients; and the sums over ranks with the update, which also computes the gradients' norm and
// skips an update that is not finite, as in training. If all micro-batches fit into one program,
// that is the only part. Throws as step_program().
std::vector<StepPart> parts_of_step(const RunSpec& step, std::int64_t parts,
                                    const DeviceTraits& traits);

// parts_of_step() is made of these: the run of a micro-batch with this kind of gradients; the
// program of its loss before passes; and the program that updates `leaves`, the leaves of the
// micro-batches, and computes the gradients' norm. `parts`: the number of micro-batches in a step.
RunSpec micro_batch_of(const RunSpec& step, GradientKind kind);
Program micro_batch_loss(const RunSpec& micro_batch, std::int64_t parts);
Program update_of_micro_batches(const RunSpec& step, std::span<const Value> leaves,
                                const DeviceTraits& traits);

// Device bytes of weights and states, where leaves with the same name count once; and of all
// inputs.
std::int64_t kept_bytes(std::span<const Value> leaves);
std::int64_t input_bytes(std::span<const Value> leaves);
// Bytes of the leaves that live in the host's memory.
std::int64_t host_bytes(std::span<const Value> leaves);
// The leaves of the program, in its order.
std::vector<Value> leaves_of(const Program& program);

// The bytes of weights and states in the device's memory, which the programs share.
std::int64_t kept_bytes(std::span<const StepPart> parts);
// Device bytes that are in use all the time: weights and states, and the inputs of each program.
std::int64_t leaf_bytes(std::span<const StepPart> parts);
// The device's bytes at the peak. The leaves of all programs are allocated all the time, and so are
// the arenas of executors that have them.
std::int64_t predicted_peak_bytes(ExecutorKind kind, std::span<const StepPart> parts,
                                  const DeviceTraits& traits);

}  // namespace tracestep
