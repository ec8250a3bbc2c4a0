// From the specification of a run to the program that runs.
#pragma once

#include "runtime/device.h"
#include "spec/run_spec.h"

namespace tracestep {

// Whether training in this precision scales the loss: float16 has too few exponents for gradients.
bool scales_loss(const Precision& precision);

// Inference builds logits alone; the other modes the loss on given targets.
Program forward_program(const RunSpec& spec);
// The loss with more than that said; its weights are those of the spec.
Program loss_program(const RunSpec& spec, LossOptions options = {});
// One token at a time, for texts of at most the spec's context.
Program decode_program(const RunSpec& spec);

// The options of all passes that the spec decides; `has_kernel` is left empty. The loss is scaled
// where an optimizer will use the gradients; transient gradients of `forward-backward` are those of
// the loss itself.
PipelineOptions pipeline_options(const RunSpec& spec);
// `forward` after all passes, for `device`'s kernels. A device that has no float32 (the reference)
// gets the same program in float64: parameters, states and rates as well.
Program lowered(const Program& forward, PipelineOptions options, const Device& device);
// The program after all passes, for `device`'s kernels.
Program step_program(const RunSpec& spec, const Device& device);
// The same for a device that is not there: planning/needs.h says what its kind has kernels for.
Program step_program(const RunSpec& spec, DeviceKind kind = DeviceKind::kCpu);

}  // namespace tracestep
