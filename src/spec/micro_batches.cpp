#include "spec/micro_batches.h"

#include <algorithm>
#include <map>

#include "exec/executor.h"
#include "ir/builder.h"
#include "passes/autograd.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

// By name, in the device's memory.
std::map<std::string, Value> leaves_of(std::span<const StepPart> parts) {
  std::map<std::string, Value> out;
  for (const StepPart& part : parts) {
    for (const ValueId id : part.program.leaves) {
      const Value& leaf = part.program.value(id);
      if (leaf.memory == Memory::kDevice) out.emplace(leaf.name, leaf);
    }
  }
  return out;
}

// On the gradients that the other programs leave as states.
Program update_of(const RunSpec& step, std::span<const StepPart> micro_batches) {
  Builder b("update");
  for (const auto& [name, leaf] : leaves_of(micro_batches)) {
    if (leaf.leaf == LeafKind::kParameter) {
      const Val parameter = b.parameter(name, leaf.type, leaf.part);
      const Val gradient =
          b.state_of(parameter, kGradientPrefix, leaf.type.dtype, tracestep::Role::kGradient);
      if (step.parallel.is_on()) b.output(gradient_name(name), gradient);
    } else if (leaf.role == tracestep::Role::kWeightCast) {
      b.leaf(leaf.leaf, name, leaf.type, leaf.role, leaf.part);
    }
  }
  return b.finish();
}

}  // namespace

std::vector<StepPart> parts_of_step(const RunSpec& step, std::int64_t parts,
                                    const DeviceTraits& traits) {
  std::vector<StepPart> out;
  if (parts == 1) {
    out.push_back({step_program(step, traits)});
    return out;
  }
  RunSpec whole = step;
  whole.optimizer.report_norm = true;
  whole.optimizer.guard_finite = true;
  RunSpec part = whole;
  part.mode = Mode::kForwardBackward;
  part.shape.batch = step.shape.batch / parts;
  const double scale = 1.0 / static_cast<double>(parts * step.parallel.replicas());
  for (const GradientKind kind : {GradientKind::kPersistent, GradientKind::kAccumulate}) {
    part.gradients = kind;
    out.push_back({program_for(loss_program(part, {.scale = scale}), part, traits),
                   kind == GradientKind::kPersistent ? 1 : parts - 1});
  }
  out.push_back({program_for(update_of(whole, out), whole, traits, {.has_gradients = true})});
  return out;
}

std::int64_t kept_bytes(std::span<const StepPart> parts) {
  std::int64_t out = 0;
  for (const auto& [name, leaf] : leaves_of(parts)) {
    if (leaf.leaf != LeafKind::kInput) out += leaf.type.bytes();
  }
  return out;
}

std::int64_t leaf_bytes(std::span<const StepPart> parts) {
  std::int64_t out = kept_bytes(parts);
  for (const StepPart& part : parts) {
    for (const ValueId id : part.program.leaves) {
      const Value& leaf = part.program.value(id);
      if (leaf.leaf == LeafKind::kInput) out += leaf.type.bytes();
    }
  }
  return out;
}

std::int64_t predicted_peak_bytes(ExecutorKind kind, std::span<const StepPart> parts,
                                  const DeviceTraits& traits) {
  std::int64_t together = 0, most = 0;
  for (const StepPart& part : parts) {
    const std::int64_t own =
        predicted_peak_bytes(kind, part.program, traits) - leaf_bytes({&part, 1});
    together += own;
    most = std::max(most, own);
  }
  return leaf_bytes(parts) + (has_arena(kind) ? together : most);
}

}  // namespace tracestep
