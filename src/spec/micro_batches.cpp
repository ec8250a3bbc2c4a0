#include "spec/micro_batches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/indexed.h"
#include "base/units.h"
#include "captured/captured_model.h"
#include "exec/executor.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "passes/optimizer.h"
#include "passes/recompute_budget.h"
#include "planning/needs.h"
#include "spec/step_program.h"
#include "spec/whole_budget.h"

namespace tracestep {
namespace {

std::vector<Value> leaves_of(std::span<const StepPart> parts) {
  std::vector<Value> out;
  for (const StepPart& part : parts)
    std::ranges::move(leaves_of(part.program), std::back_inserter(out));
  return out;
}

// Returns `step` with its batch divided into `parts` micro-batches, computed one after the other.
RunSpec divided(RunSpec step, std::int64_t parts) {
  step.shape.batch /= parts;
  step.accumulate = parts;
  return step;
}

// Returns `step` with reports of the norm and without updates that are not finite, as in training.
RunSpec with_norm(RunSpec step) {
  step.optimizer.report_norm = true;
  step.optimizer.guard_finite = true;
  return step;
}

// True for a node that makes from weights alone what products read instead: narrow copies, codes.
bool is_of_weights(const Program& program, const Node& node) {
  if (node.op->kernel_class == KernelClass::kCollective) return false;
  return std::ranges::any_of(node.outputs, [&](ValueId id) {
    return program.value(id).role == tracestep::Role::kWeightCast;
  });
}

// Joins the programs of a step into one. If a program updates a state, the programs after it read
// the updated value.
class Joined {
 public:
  Joined(const RunSpec& step, std::string name) : step_(step), b_(std::move(name)) {}

  // Adds the program `part` of micro-batch `number`. States that it updates change from one
  // micro-batch to the next; parameters, constants and other states stay as they are.
  void add_micro_batch(const Program& part, std::int64_t number) {
    std::set<std::string_view> changing;
    for (const Update& u : part.updates) changing.insert(part.value(u.leaf).name);
    begin(part);
    for (const ValueId id : part.leaves) {
      const Value& leaf = part.value(id);
      map_[at(id)] = leaf.leaf == LeafKind::kInput ? rows_of(leaf, number) : leaf_of(leaf);
      const bool stays = leaf.leaf != LeafKind::kInput && !changing.contains(leaf.name);
      if (stays) lasting_.insert(map_[at(id)].id);
    }
    for (const Node& node : part.nodes) copy_once(part, node);
    take_updates(part);
    const Val loss = map_[at(part.find_output("loss"))];
    const auto scope = b_.scope("loss");
    loss_ = loss_ ? b_.call1("add", {loss_, loss}) : loss;
  }

  Program finish(const Program& update) {
    begin(update);
    for (const ValueId id : update.leaves) {
      const Value& leaf = update.value(id);
      if (leaf.leaf != LeafKind::kInput) {
        map_[at(id)] = leaf_of(leaf);
      } else {
        map_[at(id)] = leaf.name == kAccumulatedLoss ? loss_ : input(leaf.name, leaf.type);
      }
    }
    for (const Node& node : update.nodes) copy(update, node, operands(node));
    take_updates(update);
    b_.output("loss", loss_);
    for (const Output& o : update.outputs) {
      if (o.name != "loss") b_.output(o.name, map_[at(o.value)]);
    }
    for (const auto& [name, value] : now_) b_.update(leaves_.at(name), value);
    return b_.finish();
  }

 private:
  using Key = std::pair<const OpDef*, std::vector<ValueId>>;
  struct MadeOnce {
    Attrs attrs;
    std::vector<Val> values;
  };

  void begin(const Program& part) { map_.assign(part.values.size(), Val()); }

  // Returns the last value that a state was updated to; for others the leaf, added if needed.
  Val leaf_of(const Value& leaf) {
    const auto now = now_.find(leaf.name);
    if (now != now_.end()) return now->second;
    const auto found = leaves_.find(leaf.name);
    if (found != leaves_.end()) return found->second;
    const Val out = b_.leaf(leaf.leaf, leaf.name, leaf.type, leaf.role, leaf.part);
    b_.set_memory(out, leaf.memory);
    return leaves_.emplace(leaf.name, out).first->second;
  }

  Val input(const std::string& name, const Type& type) {
    const auto found = leaves_.find(name);
    return found != leaves_.end() ? found->second : leaves_[name] = b_.input(name, type);
  }

  // Returns the rows of input `leaf` that micro-batch `number` reads; all if every one reads all.
  Val rows_of(const Value& leaf, std::int64_t number) {
    if (leaf.type.shape.empty() || is_given(leaf.name)) return input(leaf.name, leaf.type);
    Type all = leaf.type;
    const std::int64_t rows = all.shape[0];
    all.shape[0] *= step_.accumulate;
    return ops::slice(input(leaf.name, all), 0, number * rows, (number + 1) * rows);
  }

  // True for an input of a captured module that is the same for all of its batches.
  bool is_given(std::string_view name) const {
    if (step_.model.captured == nullptr) return false;
    return std::ranges::any_of(step_.model.captured->inputs, [&](const CapturedInput& input) {
      return input.name == name && input.role == InputRole::kGiven;
    });
  }

  std::vector<Val> operands(const Node& node) const {
    std::vector<Val> out;
    out.reserve(node.inputs.size());
    for (const ValueId id : node.inputs) out.push_back(map_[at(id)]);
    return out;
  }

  void copy(const Program& part, const Node& node, const std::vector<Val>& inputs) {
    const std::vector<Val> made = b_.copy(part, node, inputs);
    for (std::size_t i = 0; i < made.size(); ++i) {
      map_[at(node.outputs[i])] = made[i];
      const tracestep::Role role = part.value(node.outputs[i]).role;
      if (role != tracestep::Role::kNone) b_.set_role(made[i], role);
    }
  }

  // Replaces lasting_ values in `parts` by copies, as an assembly has each part written in place.
  void copy_parts(const Node& node, std::vector<Val>& parts) {
    for (Val& part : parts) {
      if (!lasting_.contains(part.id)) continue;
      const auto guard = b_.like(node);
      part = b_.call1("copy", {part});
    }
  }

  // Copies the node, unless an earlier node, of forward or backward, has made the same view, narrow
  // copy or codes of lasting_ values: then the results of that node are used.
  void copy_once(const Program& part, const Node& node) {
    std::vector<Val> inputs = operands(node);
    if (node.op->is_assembly()) copy_parts(node, inputs);
    const bool is_lasting = !inputs.empty() && std::ranges::all_of(inputs, [&](Val v) {
      return lasting_.contains(v.id);
    });
    if (!is_lasting || !(node.op->is_view() || is_of_weights(part, node))) {
      return copy(part, node, inputs);
    }
    Key key{node.op, {}};
    for (const Val& v : inputs) key.second.push_back(v.id);
    std::vector<MadeOnce>& made = made_once_[std::move(key)];
    const auto found = std::ranges::find_if(
        made, [&](const MadeOnce& m) { return m.attrs.entries() == node.attrs.entries(); });
    if (found != made.end()) {
      for (std::size_t i = 0; i < node.outputs.size(); ++i)
        map_[at(node.outputs[i])] = found->values[i];
      return;
    }
    copy(part, node, inputs);
    MadeOnce& fresh = made.emplace_back(node.attrs);
    for (const ValueId id : node.outputs) {
      fresh.values.push_back(map_[at(id)]);
      lasting_.insert(map_[at(id)].id);
    }
  }

  void take_updates(const Program& part) {
    for (const Update& u : part.updates) now_[part.value(u.leaf).name] = map_[at(u.value)];
  }

  const RunSpec& step_;
  Builder b_;
  std::vector<Val> map_;               // by value of the part that is added
  std::map<std::string, Val> leaves_;  // by name
  std::map<std::string, Val> now_;     // what states hold by now, where a part has updated them
  std::set<ValueId> lasting_;          // the same for all micro-batches
  std::map<Key, std::vector<MadeOnce>> made_once_;
  Val loss_;
};

// Returns the programs of the first micro-batch and of all others; throws the higher BudgetNotMet.
std::vector<PipelineResult> micro_batches_of(const RunSpec& step, const PassContext& context,
                                             const MakesProgram& make) {
  std::vector<PipelineResult> out;
  std::optional<BudgetNotMet> not_met;
  for (const GradientKind kind : {GradientKind::kPersistent, GradientKind::kAccumulate}) {
    const RunSpec part = micro_batch_of(step, kind);
    try {
      out.push_back(make(micro_batch_loss(part, step.accumulate), part, context));
    } catch (const BudgetNotMet& error) {
      if (!not_met || not_met->least_peak_bytes() < error.least_peak_bytes()) not_met = error;
    }
  }
  if (not_met) throw *not_met;
  return out;
}

MakesProgram maker_for(const DeviceTraits& traits) {
  return [traits](const Program& program, const RunSpec& run, PassContext context) {
    context.has_kernel = [kind = traits.kind](const OpDef& op) { return runs_whole(kind, op); };
    context.traits = traits;
    return run_pipeline(program, run, context);
  };
}

// Returns the program of the update. `loss`: the type of the summed loss, if the update reads it.
Program update_before_passes(const RunSpec& step, std::span<const Value> leaves,
                             const std::optional<Type>& loss) {
  std::map<std::string_view, const Value*> by_name;
  for (const Value& leaf : leaves) by_name.emplace(leaf.name, &leaf);
  Builder b("update");
  if (loss) b.input(kAccumulatedLoss, *loss);
  for (const auto& [name, leaf] : by_name) {
    if (leaf->leaf == LeafKind::kParameter) {
      const Val parameter = b.parameter(name, leaf->type, leaf->part);
      const Val gradient = b.state_of(parameter, kGradientPrefix,
                                      by_name.at(gradient_name(std::string(name)))->type.dtype,
                                      tracestep::Role::kGradient);
      if (step.parallel.is_on()) b.output(gradient_name(std::string(name)), gradient);
    } else if (leaf->role == tracestep::Role::kWeightCast) {
      b.leaf(leaf->leaf, name, leaf->type, leaf->role, leaf->part);
    } else if (name == kFoundMagnitudes) {
      take_found_magnitudes(b, leaf->type, step.parallel.ranks);
    }
  }
  return b.finish();
}

// The last pass that the update runs before it is joined to the micro-batches, in a step that may
// keep codes of weights: the passes after it need the whole program, with the products that read
// the codes and the update that writes them.
constexpr const char* kBeforeCodes = "quantize";

bool may_keep_codes(const RunSpec& step, const PassContext& context) {
  const auto& passes = step.compile_passes;
  return step.precision.float8 && step.fp8_scaling == Float8Scaling::kDelayed &&
         has_arena(step.executor) && step.updates == UpdateTime::kEnd &&
         step.parallel.updates_whole_tensors() && !has_optimizer(step.offload) &&
         !(passes && passes->contains("update_beside")) && context.stop_after.empty() &&
         !context.disabled.contains("keep_codes");
}

// Runs the remaining passes on a joined program; its micro-batches have been through theirs.
Program finished(Program joined, const RunSpec& step, PassContext context,
                 const MakesProgram& make) {
  const std::set<std::string_view> of_updates{"keep_codes", "join", "materialize", "overlap",
                                              "schedule"};
  for (const auto& [name, doc] : pipeline_passes()) {
    if (!of_updates.contains(name)) context.disabled.insert(name);
  }
  context.start_after = kBeforeCodes;
  return make(joined, step, context).program;
}

// True if the step is made within a memory budget; false if the caller stops the passes early or
// switches off the choice of what to compute again, as the programs then keep to no budget.
bool keeps_budget(const RunSpec& step, const PassContext& context) {
  return step.recompute.kind == Recomputation::Kind::kBudget && context.stop_after.empty() &&
         !context.disabled.contains("recompute");
}

// Joins the step in one program. `parts`: the first micro-batch, and one for all others.
PipelineResult joined_step(const RunSpec& step, const PassContext& context,
                           const MakesProgram& make, std::vector<PipelineResult> parts) {
  std::vector<Value> leaves;
  for (const PipelineResult& part : parts)
    std::ranges::move(leaves_of(part.program), std::back_inserter(leaves));
  const Program& first = parts[0].program;
  const Type loss = first.type(first.find_output("loss"));
  PassContext of_update = context;
  of_update.has_gradients = true;
  const bool keeps_codes = may_keep_codes(step, context);
  if (keeps_codes) of_update.stop_after = kBeforeCodes;
  const PipelineResult update = make(update_before_passes(step, leaves, loss), step, of_update);
  Joined joined(step, first.name);
  joined.add_micro_batch(first, 0);
  for (std::int64_t i = 1; i < step.accumulate; ++i) joined.add_micro_batch(parts[1].program, i);
  Program whole = joined.finish(update.program);
  of_update.stop_after.clear();
  if (keeps_codes) whole = finished(std::move(whole), step, of_update, make);
  PipelineResult out{assign_updates(whole), std::move(parts[1].reports)};
  if (step.verify) verify(out.program, VerifyStage::kMaterialized);
  return out;
}

// Makes the step as joined_step() does, but in separate programs that run one after the other.
std::vector<StepPart> separate_step(const RunSpec& step, PassContext context,
                                    const MakesProgram& make, std::vector<PipelineResult> parts) {
  std::vector<StepPart> out;
  for (PipelineResult& part : parts) out.push_back({std::move(part.program)});
  out.back().runs = step.accumulate - 1;
  context.has_gradients = true;
  const Program update = update_before_passes(step, leaves_of(out), std::nullopt);
  out.push_back({make(update, step, context).program});
  return out;
}

// Calls `join` with the micro-batches' programs; under a memory budget, with programs for which the
// peak of the joined step, as peak_of(result) gives it, is within the budget.
template <class Join, class PeakOf>
auto made_of_micro_batches(const RunSpec& step, PassContext context, const MakesProgram& make,
                           const Join& join, const PeakOf& peak_of) {
  if (!keeps_budget(step, context)) {
    return join(step, context, make, micro_batches_of(step, context, make));
  }
  const auto made = [&](const RunSpec& run, const std::shared_ptr<BudgetSolvers>& solvers) {
    context.solvers = solvers;
    std::vector<PipelineResult> parts = micro_batches_of(run, context, make);
    std::int64_t program_bytes = 0;
    for (const PipelineResult& part : parts) {
      program_bytes = std::max(program_bytes,
                               predicted_peak_bytes(step.executor, part.program, context.traits));
    }
    auto out = join(run, context, make, std::move(parts));
    const std::int64_t peak_bytes = peak_of(out);
    return MadeStep<decltype(out)>{std::move(out), peak_bytes, program_bytes};
  };
  return made_within(step, made).result;
}

}  // namespace

PipelineResult step_of_micro_batches(const RunSpec& step, const PassContext& context,
                                     const MakesProgram& make) {
  if (step.accumulate > kMostInOneProgram) {
    throw Error(ErrorCode::kUsage, "accumulate"_field,
                fmt::format("{} micro-batches; one program is made of at most {}", step.accumulate,
                            kMostInOneProgram),
                "give fewer and larger ones");
  }
  const auto peak_bytes = [&](const PipelineResult& result) {
    return predicted_peak_bytes(step.executor, result.program, context.traits);
  };
  PipelineResult out = made_of_micro_batches(step, context, make, joined_step, peak_bytes);
  if (!keeps_budget(step, context)) return out;
  const auto chosen = std::ranges::find(out.reports, "recompute", &PassReport::name);
  if (chosen != out.reports.end() && !chosen->note.empty()) {
    chosen->note += fmt::format(", in a micro-batch; the peak of the step is {}",
                                format_bytes(peak_bytes(out)));
  }
  return out;
}

std::vector<StepPart> separate_micro_batches(const RunSpec& step, const PassContext& context,
                                             const MakesProgram& make) {
  return made_of_micro_batches(step, context, make, separate_step,
                               [&](std::span<const StepPart> parts) {
                                 return predicted_peak_bytes(step.executor, parts, context.traits);
                               });
}

std::vector<Value> leaves_of(const Program& program) {
  std::vector<Value> out;
  out.reserve(program.leaves.size());
  for (const ValueId id : program.leaves) out.push_back(program.value(id));
  return out;
}

RunSpec micro_batch_of(const RunSpec& step, GradientKind kind) {
  RunSpec out = step;
  out.mode = Mode::kForwardBackward;
  out.gradients = kind;
  out.accumulate = 1;
  return out;
}

Program micro_batch_loss(const RunSpec& micro_batch, std::int64_t parts) {
  const std::int64_t all = parts * micro_batch.parallel.replicas();
  return loss_program(micro_batch, {.scale = 1.0 / static_cast<double>(all)});
}

// Returns the program that updates weights by the gradients that micro-batches leave as states.
Program update_of_micro_batches(const RunSpec& step, std::span<const Value> leaves,
                                const DeviceTraits& traits) {
  return program_for(update_before_passes(step, leaves, std::nullopt), with_norm(step), traits,
                     {.has_gradients = true});
}

std::vector<StepPart> parts_of_step(const RunSpec& step, std::int64_t parts,
                                    const DeviceTraits& traits) {
  if (parts == 1) return {{step_program(step, traits)}};
  const RunSpec with_parts = with_norm(divided(step, parts));
  const PassContext context{.traits = traits};
  const MakesProgram make = maker_for(traits);
  if (parts > kMostInOneProgram) return separate_micro_batches(with_parts, context, make);
  return {{step_of_micro_batches(with_parts, context, make).program}};
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
