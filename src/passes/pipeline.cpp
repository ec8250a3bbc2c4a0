#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/suggest.h"
#include "captured/captured_model.h"
#include "ir/verify.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/parallel_passes.h"
#include "passes/pass_rules.h"
#include "passes/update_passes.h"

namespace tracestep {
namespace {

struct Pass {
  std::string name;
  std::string doc;
  std::function<bool(const PassOptions&)> needed;  // the pass's own rule (passes/pass_rules.h)
  Program (*run)(const Program&, const PassOptions&);
  VerifyStage stage = VerifyStage::kBuilt;
  bool compiles = false;  // runs only when programs are compiled
  // True if a compile pass is worth its cost in this run, so that it runs by default; empty: yes.
  std::function<bool(const RunSpec&)> pays = {};
};

// Runs a pass that depends on the program alone, not on the options of the run.
template <Program (*pass)(const Program&)>
Program alone(const Program& p, const PassOptions&) {
  return pass(p);
}

// Runs a pass that asks for which ops the device has kernels.
template <Program (*pass)(const Program&, const std::function<bool(const OpDef&)>&)>
Program with_kernels(const Program& p, const PassOptions& o) {
  return pass(p, [&](const OpDef& op) { return o.has_kernel(op); });
}

using Run = PassOptions;

// Returns the passes that turn the forward program into a step, by choosing what it computes.
// Composites are expanded twice: `decompose` runs before autograd, so that primitive programs save
// what plain framework code saves; `lower` runs after the optimizer, for composites of gradients
// and updates and for ops without a kernel on the device.
std::vector<Pass> computing_passes() {
  return {
      {"adapt", "adapters beside products, constants for weights that are not trained",
       &Run::adapts, adapt},
      {"split", "weights, heads and the vocabulary divided among the ranks of a replica",
       &Run::splits, split},
      {"choose", "attention in the form that was asked for; in inference no dropout", chooses_forms,
       choose},
      {"decompose", "composites into parts, as the granularity says", &Run::always, decompose},
      {"shard", "weights as each rank's part, gathered where they are read", &Run::shards_weights,
       shard},
      {"autocast", "matrix products in the low dtype, sums and norms in float32", &Run::casts,
       autocast},
      {"narrow_frozen", "weights that are not trained in the low dtype alone", narrows_frozen,
       narrow_frozen},
      {"keep_nf4", "weights that are not trained in 4 bits, widened in front of products",
       keeps_nf4, keep_nf4},
      {"autograd", "gradients of the loss by every parameter", &Run::differentiates, autograd},
      {"sum_shards", "gradients in states summed over all ranks, micro-batch by micro-batch",
       sums_shards, sum_shards},
      {"reduce", "gradients and the loss summed over all ranks", reduces, reduce},
      {"optimizer", "parameter updates from gradients", &Run::updates, optimizer},
  };
}

// Returns passes that choose which values are kept, where and how long, and which nodes are joined.
std::vector<Pass> memory_passes() {
  return {
      {"lower", "expands what has no kernel on the device", &Run::always, lower},
      {"simplify", "common subexpressions, identities, dead code", &Run::always, alone<simplify>},
      {"narrow_gathers", "weights gathered in the dtype in which they are read", narrows_gathers,
       alone<narrow_gathers>},
      {"chunk_loss", "logits, loss and their gradients in chunks of rows", chunks_loss, chunk_loss},
      {"chunk_ffn", "feed-forwards in chunks of rows, in forward and in backward", chunks_ffn,
       chunk_ffn},
      {.name = "shadow",
       .doc = "weights kept in the low dtype as well, gradients read as they come",
       .needed = keeps_shadows,
       .run = shadow,
       .compiles = true},
      {.name = "narrow",
       .doc = "gradients of biases summed as products read them, without wide copies in between",
       .needed = narrows_gradients,
       .run = alone<narrow>,
       .compiles = true},
      {.name = "keep_narrow",
       .doc = "narrow values kept for backward, which widens them again",
       .needed = keeps_narrow,
       .run = alone<keep_narrow>,
       .compiles = true},
      {.name = "assemble_slices",
       .doc = "gradients of slices that cover a tensor written side by side",
       .needed = &Run::differentiates,
       .run = alone<assemble_slices>,
       .compiles = true},
      {.name = "merge",
       .doc = "one product for weights that lie side by side",
       .needed = &Run::always,
       .run = merge,
       .compiles = true},
      {.name = "pad",
       .doc = "logits with columns of padding, where their rows would not be aligned",
       .needed = pads,
       .run = alone<pad>,
       .compiles = true},
      {"quantize", "products of the layers in 8 bits, each operand quantized once", quantizes,
       quantize},
      {"keep_codes", "codes of weights written by their updates and kept for the next step",
       keeps_codes, alone<keep_codes>},
      {.name = "update_beside",
       .doc = "updates of each layer on a lane of their own, beside the backward of others",
       .needed = updates_beside,
       .run = update_beside,
       .compiles = true,
       // Pays where the updates wait for the bus to the host (bench/results/cuda-h200.md).
       .pays = [](const RunSpec& run) { return has_optimizer(run.offload); }},
      {.name = "join",
       .doc = "one launch for the updates of all tensors",
       .needed = &Run::updates_at_end,
       .run = join,
       .compiles = true},
      {"update_early", "updates inside backward, as soon as their gradients are there",
       &Run::updates_early, alone<update_early>},
      {"offload", "what only updates read in the host's memory", offloads, alone<offload>},
      {"recompute", "forward nodes again in backward, so that their results are not kept",
       recomputes, recompute},
      {"regather", "weights gathered, or widened, again for backward instead of kept", regathers,
       alone<regather>},
      {"offload_activations", "what backward reads of other layers in the host's memory meanwhile",
       offloads_activations, offload_activations},
      {.name = "stream_states",
       .doc = "moments and weights of the host's memory copied in and out beside updates of others",
       .needed = streams_states,
       .run = stream_states,
       .compiles = true,
       .pays = [](const RunSpec& run) { return has_optimizer(run.offload); }},
      {"keep_saved", "forward alone, holding what backward would read", keeps_saved,
       alone<keep_saved>},
  };
}

// Returns passes that choose kernels which do several things, their operands, and the order.
std::vector<Pass> kernel_passes() {
  return {
      {.name = "overwrite",
       .doc = "loss and gradient of logits as one node, which writes over the logits",
       .needed = &Run::trains,
       .run = with_kernels<overwrite>,
       .compiles = true},
      {"gemv", "products of one row with the norm, the activation and the sums around them",
       decodes_rows, with_kernels<gemv>},
      {.name = "gate",
       .doc = "products that end with SwiGLU or its gradients, where that is faster",
       .needed = &Run::always,
       .run = gate,
       .compiles = true},
      {.name = "fuse",
       .doc = "elementwise ops, rows and the views between them as one kernel",
       .needed = fuses,
       .run = [](const Program& p, const PassOptions& o) { return fuse(p, fuses_updates(o)); },
       .compiles = true},
      {.name = "epilogue",
       .doc = "products that add to a tensor, where a sum of both would be a launch",
       .needed = &Run::always,
       .run = epilogue,
       .compiles = true},
      {"by_parts", "products of float32 on tensor cores, as products of float16 parts",
       computes_by_parts, with_kernels<by_parts>},
      {"materialize", "explicit copies where a layout needs one", &Run::always, alone<materialize>,
       VerifyStage::kMaterialized},
      {"overlap", "collectives in batches, beside the other nodes", overlaps, overlap},
      {"schedule", "order: constants directly before their first reader", &Run::always,
       alone<schedule>},
  };
}

// Returns all passes, in the order in which they run.
const std::vector<Pass>& passes() {
  static const std::vector<Pass> all = [] {
    std::vector<Pass> out;
    for (std::vector<Pass>& part :
         std::vector{computing_passes(), memory_passes(), kernel_passes()}) {
      std::ranges::move(part, std::back_inserter(out));
    }
    return out;
  }();
  return all;
}

bool is_asked_for(const Pass& pass, const RunSpec& run) {
  if (run.compile_passes) return run.compile_passes->contains(pass.name);
  return has_arena(run.executor) && (!pass.pays || pass.pays(run));
}

bool runs(const Pass& pass, const PassOptions& o) {
  const bool is_on = !pass.compiles || is_asked_for(pass, o.run);
  return is_on && !o.context.disabled.contains(pass.name) && pass.needed(o);
}

void check_names(const PassContext& context) {
  std::vector<std::string> names;
  for (const Pass& pass : passes()) names.push_back(pass.name);
  std::set<std::string> asked = context.disabled;
  for (const std::string& name : {context.start_after, context.stop_after}) {
    if (!name.empty()) asked.insert(name);
  }
  for (const std::string& name : asked) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto close = closest(name, names);
    throw Error(ErrorCode::kUsage, "passes"_field, fmt::format("there is no pass '{}'", name),
                close ? fmt::format("did you mean '{}'?", *close) : "");
  }
}

}  // namespace

std::set<std::string> PassOptions::own_constants() const {
  std::set<std::string> kept;
  if (const auto& module = run.model.captured) {
    for (const ValueId id : module->program.leaves) {
      const Value& leaf = module->program.value(id);
      if (leaf.leaf == LeafKind::kConstant) kept.insert(leaf.name);
    }
  }
  return kept;
}

Program run_passes(Program program, const PassOptions& options, std::string_view after,
                   std::string_view before) {
  const std::vector<Pass>& all = passes();
  auto pass = std::ranges::find(all, after, &Pass::name);
  TRACESTEP_CHECK(pass != all.end(), "no pass {}", after);
  for (++pass; pass != all.end() && pass->name != before; ++pass) {
    if (runs(*pass, options)) program = pass->run(program, options);
  }
  return program;
}

std::vector<std::pair<std::string, std::string>> pipeline_passes() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Pass& pass : passes()) out.emplace_back(pass.name, pass.doc);
  return out;
}

std::vector<std::string> compile_passes() {
  std::vector<std::string> out;
  for (const Pass& pass : passes()) {
    if (pass.compiles) out.push_back(pass.name);
  }
  return out;
}

std::vector<std::string> compile_passes_of(const RunSpec& run) {
  std::vector<std::string> out;
  for (const Pass& pass : passes()) {
    if (pass.compiles && is_asked_for(pass, run)) out.push_back(pass.name);
  }
  return out;
}

namespace {

// Returns the bytes of one rank's gradients, in the dtype in which they are summed.
std::int64_t gradient_bytes(const Program& program, const RunSpec& run) {
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf != LeafKind::kParameter) continue;
    const auto low = run.precision.autocast;
    const DType dtype = run.parallel.low_sums && low ? *low : leaf.type.dtype;
    out += leaf.type.count() * static_cast<std::int64_t>(size_of(dtype));
  }
  return out / run.parallel.tensor;
}

}  // namespace

PipelineResult run_pipeline(const Program& program, const RunSpec& run,
                            const PassContext& context) {
  check_names(context);
  PassOptions options{run, context};
  const bool is_begun = !context.start_after.empty();
  const Program trained =
      options.adapts() && !is_begun ? adapt(program, run.lora, run.frozen) : Program();
  options.run.parallel =
      resolve_bucket(run.parallel, gradient_bytes(trained.leaves.empty() ? program : trained, run));
  PipelineResult out{program, {}};
  VerifyStage stage = VerifyStage::kBuilt;
  bool is_made = is_begun;
  for (const Pass& pass : passes()) {
    if (is_made) {
      is_made = pass.name != context.start_after;
      continue;
    }
    PassReport report{pass.name, pass.doc};
    report.nodes_before = static_cast<std::int64_t>(out.program.nodes.size());
    options.context.note = [&report](std::string text) { report.note = std::move(text); };
    if (runs(pass, options)) {
      const auto start = std::chrono::steady_clock::now();
      Program next = pass.run(out.program, options);
      const auto stop = std::chrono::steady_clock::now();
      report.ms = std::chrono::duration<double, std::milli>(stop - start).count();
      report.ran = true;
      report.changed = !(next == out.program);
      out.program = std::move(next);
      if (pass.stage == VerifyStage::kMaterialized) stage = pass.stage;
      if (options.run.verify) verify(out.program, stage);
    }
    report.nodes_after = static_cast<std::int64_t>(out.program.nodes.size());
    out.reports.push_back(std::move(report));
    if (pass.name == options.context.stop_after) break;
  }
  return out;
}

}  // namespace tracestep
