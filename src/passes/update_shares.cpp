#include <algorithm>

#include "base/indexed.h"
#include "captured/captured_model.h"
#include "ir/layer_path.h"
#include "ir/op_def.h"
#include "nn/transformer.h"
#include "passes/form_passes.h"
#include "passes/optimizer.h"
#include "run/run_spec.h"

namespace tracestep {
namespace {

// Returns the parameter's share of the highest rate and decay of all groups; 0: it is in no group.
UpdateShare share_in(const std::vector<OptimizerGroup>& groups, const std::string& parameter) {
  UpdateShare highest{0.0, 0.0};
  for (const OptimizerGroup& group : groups) {
    highest = {std::max(highest.rate, group.lr), std::max(highest.decay, group.weight_decay)};
  }
  const auto share = [](double own, double most) { return most > 0.0 ? own / most : 1.0; };
  for (const OptimizerGroup& group : groups) {
    if (!group.parameters.contains(parameter)) continue;
    return {share(group.lr, highest.rate), share(group.weight_decay, highest.decay)};
  }
  return {0.0, 0.0};
}

// Returns the whole model of a run: a captured module, or a built-in one on a batch of one token.
Program model_of(const RunSpec& run) {
  return run.model.captured != nullptr ? run.model.captured->program
                                       : logits_program(run.model, {.batch = 1, .context = 1});
}

}  // namespace

std::map<std::string, Shape> muon_matrices(const RunSpec& run) {
  if (run.optimizer.kind != OptimizerKind::kMuon) return {};
  Program model = model_of(run);
  if (run.lora.is_on() || run.frozen.any()) model = adapt(model, run.lora, run.frozen);
  std::map<std::string, Shape> out;
  for (const Node& node : model.nodes) {
    if (!node.op->product) continue;
    for (const ValueId id : node.inputs) {
      for (const ValueId leaf : leaves_of(model, id)) {
        const Value& weight = model.value(leaf);
        const bool is_matrix = weight.leaf == LeafKind::kParameter && weight.type.shape.rank() == 2;
        if (is_matrix && !layer_of(weight.name).empty()) out[weight.name] = weight.type.shape;
      }
    }
  }
  return out;
}

std::map<std::string, UpdateShare> update_shares(const RunSpec& run) {
  const CapturedModel* const module = run.model.captured.get();
  const bool has_groups = module != nullptr && !module->groups.empty();
  const bool spares =
      run.optimizer.weight_decay != 0.0 && run.optimizer.decay_on == DecayOn::kMatrices;
  if (!has_groups && !spares) return {};
  std::map<std::string, UpdateShare> out;
  const Program program = model_of(run);
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf != LeafKind::kParameter) continue;
    UpdateShare share = has_groups ? share_in(module->groups, leaf.name) : UpdateShare();
    if (spares && leaf.type.shape.rank() < 2) share.decay = 0.0;
    out[leaf.name] = share;
  }
  return out;
}

}  // namespace tracestep
