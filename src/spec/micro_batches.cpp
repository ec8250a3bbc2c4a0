#include "spec/micro_batches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_set>

#include "exec/executor.h"
#include "ir/builder.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

std::vector<Value> leaves_of(std::span<const StepPart> parts) {
  std::vector<Value> out;
  for (const StepPart& part : parts)
    std::ranges::move(leaves_of(part.program), std::back_inserter(out));
  return out;
}

// Reports the norm and guards against numbers that are not finite, as training does.
RunSpec with_norm(RunSpec step) {
  step.optimizer.report_norm = true;
  step.optimizer.guard_finite = true;
  return step;
}

}  // namespace

std::vector<Value> leaves_of(const Program& program) {
  std::vector<Value> out;
  out.reserve(program.leaves.size());
  for (const ValueId id : program.leaves) out.push_back(program.value(id));
  return out;
}

RunSpec micro_batch_of(const RunSpec& step, std::int64_t parts, GradientKind kind) {
  RunSpec out = with_norm(step);
  out.mode = Mode::kForwardBackward;
  out.gradients = kind;
  out.shape.batch = step.shape.batch / parts;
  return out;
}

Program micro_batch_loss(const RunSpec& micro_batch, std::int64_t parts) {
  const std::int64_t all = parts * micro_batch.parallel.replicas();
  return loss_program(micro_batch, {.scale = 1.0 / static_cast<double>(all)});
}

// Updates weights by the gradients that the micro-batches leave as states.
Program update_of_micro_batches(const RunSpec& step, std::span<const Value> leaves,
                                const DeviceTraits& traits) {
  std::map<std::string_view, const Value*> by_name;
  for (const Value& leaf : leaves) by_name.emplace(leaf.name, &leaf);
  Builder b("update");
  for (const auto& [name, leaf] : by_name) {
    if (leaf->leaf == LeafKind::kParameter) {
      const Val parameter = b.parameter(name, leaf->type, leaf->part);
      const Val gradient =
          b.state_of(parameter, kGradientPrefix, leaf->type.dtype, tracestep::Role::kGradient);
      if (step.parallel.is_on()) b.output(gradient_name(std::string(name)), gradient);
    } else if (leaf->role == tracestep::Role::kWeightCast) {
      b.leaf(leaf->leaf, name, leaf->type, leaf->role, leaf->part);
    } else if (name == kFoundMagnitudes) {
      take_found_magnitudes(b, leaf->type, step.parallel.ranks);
    }
  }
  return program_for(b.finish(), with_norm(step), traits, {.has_gradients = true});
}

std::vector<StepPart> parts_of_step(const RunSpec& step, std::int64_t parts,
                                    const DeviceTraits& traits) {
  std::vector<StepPart> out;
  if (parts == 1) {
    out.push_back({step_program(step, traits)});
    return out;
  }
  for (const GradientKind kind : {GradientKind::kPersistent, GradientKind::kAccumulate}) {
    const RunSpec part = micro_batch_of(step, parts, kind);
    out.push_back({program_for(micro_batch_loss(part, parts), part, traits),
                   kind == GradientKind::kPersistent ? 1 : parts - 1});
  }
  out.push_back({update_of_micro_batches(step, leaves_of(out), traits)});
  return out;
}

std::int64_t kept_bytes(std::span<const Value> leaves) {
  std::unordered_set<std::string_view> names;
  std::int64_t out = 0;
  for (const Value& leaf : leaves) {
    if (leaf.leaf == LeafKind::kInput || leaf.memory != Memory::kDevice) continue;
    if (names.insert(leaf.name).second) out += leaf.type.bytes();
  }
  return out;
}

std::int64_t input_bytes(std::span<const Value> leaves) {
  std::int64_t out = 0;
  for (const Value& leaf : leaves) {
    if (leaf.leaf == LeafKind::kInput) out += leaf.type.bytes();
  }
  return out;
}

std::int64_t host_bytes(std::span<const Value> leaves) {
  std::int64_t out = 0;
  for (const Value& leaf : leaves) {
    if (leaf.memory == Memory::kHost) out += leaf.type.bytes();
  }
  return out;
}

std::int64_t kept_bytes(std::span<const StepPart> parts) {
  return kept_bytes(leaves_of(parts));
}

std::int64_t leaf_bytes(std::span<const StepPart> parts) {
  const std::vector<Value> leaves = leaves_of(parts);
  return kept_bytes(leaves) + input_bytes(leaves);
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
