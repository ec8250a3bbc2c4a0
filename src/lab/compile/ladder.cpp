#include "lab/compile/ladder.h"

#include <algorithm>

#include "base/suggest.h"
#include "ir/print.h"
#include "passes/pipeline.h"
#include "passes/recompute_budget.h"

namespace tracestep {
namespace {

// Changes a run so that the composite is one op instead of primitive ones.
template <Composite composite>
void keep(RunSpec& run) {
  run.ops = run.ops.with(composite);
}

void add_pass(RunSpec& run, const char* name) {
  if (!run.compile_passes) run.compile_passes.emplace();
  run.compile_passes->insert(name);
}

constexpr Rung kRungs[] = {
    {"norm", "each norm is one kernel, and one for its gradient", keep<Composite::kNorm>},
    {"swiglu", "likewise SwiGLU", keep<Composite::kSwiglu>},
    {"rope", "likewise rotary embeddings", keep<Composite::kRope>},
    {"softmax", "likewise softmax with scale and mask", keep<Composite::kSoftmax>},
    {"flash", "attention tile by tile, without its matrix",
     [](RunSpec& run) { run.attention = AttentionForm::kFlash; }},
    {"optimizer", "AdamW is one kernel for each tensor", keep<Composite::kOptimizer>},
    {"loss", "logits become the loss, and their gradient, in one kernel each",
     keep<Composite::kLoss>},
    {"bf16", "products read bfloat16",
     [](RunSpec& run) { run.precision = {.autocast = DType::kBF16}; }},
    {"shadow", "the optimizer keeps the narrow copies of weights",
     [](RunSpec& run) { add_pass(run, "shadow"); }},
    {"narrow", "gradients of biases sum what products read",
     [](RunSpec& run) { add_pass(run, "narrow"); }},
    {"keep_narrow", "backward widens products again where norms read them",
     [](RunSpec& run) { add_pass(run, "keep_narrow"); }},
    {"assemble_slices", "gradients of slices that cover a tensor are written into it",
     [](RunSpec& run) { add_pass(run, "assemble_slices"); }},
    {"merge", "weights that multiply the same operand are one product",
     [](RunSpec& run) { add_pass(run, "merge"); }},
    {"pad", "logits have columns of padding, where their rows are not aligned",
     [](RunSpec& run) { add_pass(run, "pad"); }},
    {"join", "one launch updates all tensors", [](RunSpec& run) { add_pass(run, "join"); }},
    {"overwrite", "the gradient of logits is written over them, with the loss",
     [](RunSpec& run) { add_pass(run, "overwrite"); }},
    {"gate", "products end with SwiGLU or its gradients, where that is faster",
     [](RunSpec& run) { add_pass(run, "gate"); }},
    {"fuse", "what lies between products is one kernel",
     [](RunSpec& run) { add_pass(run, "fuse"); }},
    {"epilogue", "products add to a tensor, where the sum would be a launch",
     [](RunSpec& run) { add_pass(run, "epilogue"); }},
    {"arena", "buffers at planned offsets, nothing is allocated",
     [](RunSpec& run) {
       if (!has_arena(run.executor)) run.executor = ExecutorKind::kArena;
     }},
    {"graph", "all launches as one graph",
     [](RunSpec& run) { run.executor = ExecutorKind::kCompiled; }},
    {"dependent", "kernels of the graph are launched before those in front have ended",
     [](RunSpec& run) { run.launch_order = LaunchOrder::kDependent; }},
    {"lanes", "updates of a layer run beside the backward of those below",
     [](RunSpec& run) {
       add_pass(run, "update_beside");
       add_pass(run, "stream_states");  // of states in the host's memory alone
     }},
};

std::optional<RungEffect> effect_of(const CellResult& below, const CellResult& here) {
  if (below.status != Status::kOk || here.status != Status::kOk) return std::nullopt;
  if (!(below.program == here.program)) return RungEffect::kProgram;
  const bool is_ordered_otherwise = below.spec.step.launch_order != here.spec.step.launch_order;
  const bool is_run_alike =
      has_arena(below.spec.step.executor) == has_arena(here.spec.step.executor) &&
      below.captured == here.captured && !(here.captured && is_ordered_otherwise);
  return is_run_alike ? RungEffect::kNothing : RungEffect::kExecution;
}

}  // namespace

std::span<const Rung> all_rungs() {
  return kRungs;
}

const Rung& rung_named(const About& where, const std::string& name) {
  std::vector<std::string> names;
  for (const Rung& rung : kRungs) names.emplace_back(rung.name);
  check_choice(where, name, names);
  return *std::ranges::find(kRungs, name, &Rung::name);
}

bool is_set_by_rungs(const RunField& field) {
  return field.is_form || field.name == "precision";
}

Json key_of_ladder(const RunSpec& run) {
  return part_of_key(run, std::not_fn(is_set_by_rungs));
}

RunSpec naive_run(RunSpec run) {
  run.ops = Granularity::kPrimitive;
  run.attention = AttentionForm::kNaive;
  run.precision = {};
  run.executor = ExecutorKind::kEager;
  run.compile_passes.emplace();
  run.launch_order = LaunchOrder::kSerial;
  return run;
}

std::vector<RunSpec> ladder_runs(const RunSpec& run, std::span<const Rung* const> rungs) {
  std::vector<RunSpec> out{naive_run(run)};
  for (const Rung* rung : rungs) {
    out.push_back(out.back());
    rung->climb(out.back());
  }
  return out;
}

std::vector<LadderStep> ladder_of(std::span<const Rung* const> rungs, std::span<const RunSpec> runs,
                                  std::span<const CellResult> results,
                                  const std::map<std::string, std::optional<StepError>>& errors) {
  std::vector<LadderStep> out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Json key = key_of(runs[i]);
    const auto cell = std::ranges::find(
        results, key, [](const CellResult& result) { return key_of(result.spec.step); });
    if (cell == results.end()) break;
    LadderStep step{.rung = i == 0 ? nullptr : rungs[i - 1], .cell = {.result = *cell}};
    const auto error = errors.find(key.dump());
    if (error != errors.end()) step.error = error->second;
    if (!out.empty()) step.effect = effect_of(out.back().cell.result, *cell);
    out.push_back(std::move(step));
  }
  return out;
}

}  // namespace tracestep
