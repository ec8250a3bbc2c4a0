#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <memory>

#include "analysis/memory_map.h"
#include "analysis/modelled_time.h"
#include "analysis/plan.h"
#include "base/suggest.h"
#include "captured/captured_model.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/autograd.h"
#include "passes/divided_nf4.h"
#include "passes/form_passes.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/optimizer.h"
#include "passes/parallel_passes.h"
#include "passes/recompute.h"
#include "passes/recompute_budget.h"
#include "passes/recompute_choices.h"
#include "passes/update_passes.h"
#include "planning/cuda_plans.h"

namespace tracestep {
namespace {

// A program, and what was found for its budget.
struct Solved {
  Program program;
  WithinBudget found;
};

// Every pass may read these; `context` holds what the run does not say.
struct Options {
  RunSpec run;
  PassContext context;
  // Budgets that one pass solved, for another that comes to the same program.
  std::shared_ptr<std::vector<Solved>> solved = std::make_shared<std::vector<Solved>>();
};

struct Pass {
  std::string name;
  std::string doc;
  std::function<bool(const Options&)> needed;
  std::function<Program(const Program&, const Options&)> run;
  VerifyStage stage = VerifyStage::kBuilt;
  bool compiles = false;  // runs only when programs are compiled
  // True if a compile pass is worth its cost in this run, so that it runs by default; empty: yes.
  std::function<bool(const RunSpec&)> pays = {};
};

bool always(const Options&) {
  return true;
}
bool differentiates(const Options& o) {
  return o.run.mode != Mode::kInference && !o.context.has_gradients;
}
bool casts(const Options& o) {
  return o.run.precision.autocast.has_value();
}
bool steps(const Options& o) {
  return o.run.mode == Mode::kStep;
}

// True for a step or part of one: micro-batches keep gradients for the program that updates, and
// forward and backward measured alone are what the step runs of them.
bool trains(const Options& o) {
  return steps(o) || o.run.mode == Mode::kForwardBackward;
}

bool updates_early(const Options& o) {
  return steps(o) && o.run.updates == UpdateTime::kEarly;
}

// True if the user named the compile pass: it then also runs on devices that have no use for it.
bool names(const RunSpec& run, const std::string& pass) {
  return run.compile_passes && run.compile_passes->contains(pass);
}

bool offloads(const Options& o) {
  return has_optimizer(o.run.offload) && o.context.traits.has_own_memory();
}

// True if updates are to read buffers of the device in the place of what lies in the host's memory;
// among several ranks lanes are for collectives.
bool streams_states(const Options& o) {
  const bool is_on =
      o.run.compile_passes ? names(o.run, "stream_states") : has_arena(o.run.executor);
  return is_on && !o.context.disabled.contains("stream_states") && offloads(o) && steps(o) &&
         o.context.traits.has_lanes() && !o.run.parallel.is_on();
}

bool offloads_saved(const Options& o) {
  return has_activations(o.run.offload) && o.context.traits.has_own_memory() && trains(o) &&
         !o.context.has_gradients;
}

// True where the update of a weight can write its narrow copy.
bool keeps_shadows(const Options& o) {
  return trains(o) && o.run.updates == UpdateTime::kEnd;
}

bool pads(const Options& o) {
  return keeps_shadows(o) && (o.context.traits.wants_aligned_rows() || names(o.run, "pad"));
}

bool updates_at_end(const Options& o) {
  return steps(o) && !updates_early(o);
}

// A CPU runs lane 1 in its place; among several ranks that lane is for collectives.
bool updates_beside(const Options& o) {
  return steps(o) && o.context.traits.has_lanes() && !o.run.parallel.is_on();
}

bool divides(const Options& o) {
  const bool is_summed = o.context.has_gradients && o.context.sums_shards;
  return o.run.parallel.is_on() && (steps(o) || o.run.mode == Mode::kForwardBackward) && !is_summed;
}
bool adapts(const Options& o) {
  return (o.run.lora.is_on() || o.run.frozen.any()) && !o.context.has_gradients;
}
bool is_split(const Options& o) {
  return o.run.parallel.is_divided() && !o.context.has_gradients;
}
bool shards_weights(const Options& o) {
  return o.run.parallel.is_on() && o.run.parallel.shards_weights() && !o.context.has_gradients;
}

bool communicates(const Options& o) {
  return divides(o) || shards_weights(o);
}

bool recomputes(const Options& o) {
  return differentiates(o) && o.run.recompute.kind != Recomputation::Kind::kNone;
}

bool computes_again(const Program& p) {
  return std::ranges::any_of(
      p.nodes, [](const Node& node) { return node.origin().phase == Phase::kRecompute; });
}

bool has_kernel(const Options& o, const OpDef& op) {
  return o.context.has_kernel ? o.context.has_kernel(op) : !op.always_decompose;
}

// A pass that makes nodes of an op where the device has a kernel for it.
using KernelPass = Program (*)(const Program&, const std::function<bool(const OpDef&)>&);
std::function<Program(const Program&, const Options&)> with_kernels(KernelPass pass) {
  return [pass](const Program& p, const Options& o) {
    return pass(p, [&](const OpDef& op) { return has_kernel(o, op); });
  };
}

// Fused nodes need a device that compiles kernels at run time.
bool fuses(const Options& o) {
  return has_kernel(o, op_of_fused_nodes());
}

// True if `fuse` will run.
bool joins_kernels(const Options& o) {
  const bool is_on = o.run.compile_passes ? names(o.run, "fuse") : has_arena(o.run.executor);
  return is_on && !o.context.disabled.contains("fuse") && fuses(o);
}

bool chooses(const Options& o) {
  return o.run.attention != AttentionForm::kNaive || o.run.mode == Mode::kInference;
}

// The forms of ops that the run asks for: nothing is dropped where nothing is trained.
std::map<std::string, std::string> forms_of(const RunSpec& run) {
  std::map<std::string, std::string> out;
  if (run.attention != AttentionForm::kNaive) {
    const std::string form(name_of(run.attention));
    out = {{"attention", form}, {"attention_with_cache", form}, {"attention_of_documents", form}};
  }
  if (run.mode == Mode::kInference) out["dropout"] = "none";
  return out;
}
// Composites that the granularity does not keep, except those that the user chose explicitly.
bool is_taken_apart(const Options& o, const OpDef& op) {
  return !o.run.ops.keeps(op.composite) && !op.stays_whole;
}

// A product with its bias, a primitive op of frameworks. It is one op for the sake of its dtype:
// without autocast a product and a sum have the same values.
bool is_biased_product(const OpDef& op) {
  return op.product && op.decompose;
}

// Expands what the granularity does not keep, and ops without a gradient rule; in a program without
// backward such an op is kept if it has a kernel.
Program decompose_first(const Program& p, const Options& o) {
  return decompose(p, [&](const OpDef& op) {
    if (is_biased_product(op)) return !casts(o);
    const bool kept = op.gradient || (!differentiates(o) && has_kernel(o, op));
    return is_taken_apart(o, op) || !kept;
  });
}

// True also where the gradients are for an optimizer that runs later; those that nobody updates
// with are of the unscaled loss, unless they are asked for.
bool scales(const Options& o) {
  const bool are_for_updates = steps(o) || o.run.gradients != GradientKind::kTransient;
  return o.run.optimizer.loss_scaling.enabled || (scales_loss(o.run.precision) && are_for_updates);
}

Program differentiate(const Program& p, const Options& o) {
  return autograd(p, {.kind = o.run.gradients,
                      .scaled = scales(o),
                      .narrow_sums = o.run.grad_accum_dtype == GradientSums::kLow});
}

// Nothing is dropped where nothing is trained.
Program add_adapters(const Program& p, const Options& o) {
  Adapters lora = o.run.lora;
  if (o.run.mode == Mode::kInference) lora.dropout = 0.0;
  return adapt(p, lora, o.run.frozen);
}

// The constants of a captured module are as the module has them.
std::set<std::string> own_constants(const Options& o) {
  std::set<std::string> kept;
  if (const auto& module = o.run.model.captured) {
    for (const ValueId id : module->program.leaves) {
      const Value& leaf = module->program.value(id);
      if (leaf.leaf == LeafKind::kConstant) kept.insert(leaf.name);
    }
  }
  return kept;
}
Program narrow_constants(const Program& p, const Options& o) {
  return narrow_frozen(p, *o.run.precision.autocast, own_constants(o));
}

bool keeps_nf4(const Options& o) {
  return adapts(o) && o.run.lora.is_on() && o.run.lora.base == BaseWeights::kNf4;
}
Program keep_frozen_nf4(const Program& p, const Options& o) {
  return keep_nf4_of_ranks(p, own_constants(o), is_split(o) ? o.run.parallel.tensor : 1);
}

Program update(const Program& p, const Options& o) {
  OptimizerOptions options = o.run.optimizer;
  options.loss_scaling.enabled = scales(o);
  const Parallel& parallel = o.run.parallel;
  return optimizer(p, options,
                   {.shares = update_shares(o.run),
                    .shards = parallel.shards_optimizer() ? parallel.replicas() : 1,
                    .tensor = parallel.tensor,
                    .rounds_weights = o.context.rounds_weights});
}

Program lower(const Program& p, const Options& o) {
  return decompose(p, [&](const OpDef& op) {
    return (is_taken_apart(o, op) && !is_biased_product(op)) || !has_kernel(o, op);
  });
}

// A program without backward may be of a few tokens.
Program quantize_products(const Program& p, const Options& o) {
  const bool may_have_none = !differentiates(o) || o.run.mode == Mode::kForward;
  return quantize(p,
                  {.products = o.run.fp8_products,
                   .scaling = trains(o) ? o.run.fp8_scaling : Float8Scaling::kCurrent,
                   .may_have_none = may_have_none,
                   .gradients = steps(o) ? GradientKind::kTransient : o.run.gradients,
                   .ranks = o.run.parallel.ranks},
                  [&](const OpDef& op) { return has_kernel(o, op); });
}

// True if every rank holds whole weights and states on its device, and so can keep their codes.
bool keeps_codes(const Options& o) {
  return has_arena(o.run.executor) && o.run.precision.float8 &&
         o.run.fp8_scaling == Float8Scaling::kDelayed && updates_at_end(o) &&
         o.run.parallel.updates_whole_tensors() && !offloads(o) &&
         has_kernel(o, find_op("adamw_codes")) && has_kernel(o, find_op("refresh_codes"));
}

Program cut_loss(const Program& p, const Options& o) {
  Program out =
      chunk_loss(p, o.run.loss_chunks, [&](const OpDef& op) { return has_kernel(o, op); });
  if (o.context.note && out == p)
    o.context.note("cut nothing: one chunk is enough, or the loss is not an op of its own");
  return out;
}

Program cut_ffn(const Program& p, const Options& o) {
  return chunk_ffn(p, o.run.ffn_chunks, [&](const OpDef& op) { return has_kernel(o, op); });
}

Program finished(Program program, const Options& options, std::string_view after,
                 std::string_view before = {});

// A node that runs again may read a weight, whose early update is then moved behind it.
Program settled(Program p, const Options& o) {
  return updates_early(o) ? update_early(p) : std::move(p);
}

std::int64_t peak_bytes_of(const Program& step, const Options& o) {
  return has_arena(o.run.executor)
             ? plan_step(step, o.context.traits).peak_bytes()
             : predicted_peak_bytes(step, plan_buffers(step), o.context.traits);
}

// A budget is for the peak of what the remaining passes make of a candidate.
WithinBudget within_budget(const Program& p, const Options& o) {
  for (const Solved& solved : *o.solved) {
    if (solved.program == p) return solved.found;
  }
  const auto peak_bytes = [&](const Program& candidate) {
    return peak_bytes_of(finished(settled(candidate, o), o, "recompute"), o);
  };
  WithinBudget found = recompute_within(p, o.run.recompute.budget_bytes, o.context.traits.kind,
                                        peak_bytes, joins_kernels(o));
  o.solved->push_back({p, found});
  return found;
}

Program recompute_again(const Program& p, const Options& o) {
  if (o.run.recompute.kind != Recomputation::Kind::kBudget) {
    return settled(recompute(p, o.run.recompute), o);
  }
  WithinBudget found = within_budget(p, o);
  if (o.context.note) o.context.note(words_of(found));
  return settled(std::move(found.program), o);
}

// The modelled time of what a budget's choice of narrow copies and of what runs again changes;
// infinite if nothing fits. `program`: as `shadow` leaves it.
double us_within_budget(Program program, const Options& o) {
  const DeviceKind kind = o.context.traits.kind;
  program = finished(std::move(program), o, "shadow", "recompute");
  try {
    return modelled_us(program, Phase::kForward, kind, joins_kernels(o)) +
           modelled_us(program, Phase::kOptimizer, kind, joins_kernels(o)) +
           within_budget(program, o).again_us;
  } catch (const BudgetNotMet&) {
    return std::numeric_limits<double>::infinity();
  }
}

// True if the head's narrow copy gets rows of zeros behind it, which make its products faster.
bool is_padded(Program program, const Options& o) {
  if (!pads(o)) return false;
  program = finished(std::move(program), o, "shadow", "pad");
  return pad(program) != program;
}

// Narrow copies take memory. Under a budget that the step does not meet as it is, it may pay to
// cast the weights of blocks again instead. The head's copy goes first: casting it takes the least
// time for its bytes, and it is not read any more when the gradient of the head is made, which is
// the fullest moment where the logits are large.
Program keep_shadows(const Program& p, const Options& o) {
  Program all = shadow(p);
  const bool may_cast = o.run.recompute.kind == Recomputation::Kind::kBudget && steps(o) &&
                        !o.context.has_gradients && !o.run.parallel.is_on() && !offloads(o) &&
                        !o.run.precision.float8;
  if (!may_cast) return all;
  const Program whole = finished(finished(all, o, "shadow", "recompute"), o, "recompute");
  if (peak_bytes_of(whole, o) <= o.run.recompute.budget_bytes) return all;
  const bool keeps_others = is_padded(all, o);
  Program kept = keeps_others ? std::move(all) : shadow(p, Shadows::kInBlocks);
  Program cast = shadow(p, keeps_others ? Shadows::kOutsideBlocks : Shadows::kNone);
  if (cast == kept) return kept;
  return us_within_budget(cast, o) < us_within_budget(kept, o) ? cast : kept;
}

// Composites are expanded twice. `decompose` runs before autograd, so that primitive programs save
// what plain framework code saves; `lower` runs after the optimizer, for the composites of
// gradients and updates and for what the device has no kernel for.
// The forward program becomes a step: what is computed.
std::vector<Pass> computing_passes() {
  return {
      {"adapt", "adapters beside products, constants for weights that are not trained", adapts,
       add_adapters},
      {"split", "weights, heads and the vocabulary divided among the ranks of a replica", is_split,
       [](const Program& p, const Options& o) { return split(p, o.run.parallel); }},
      {"choose", "attention in the form that was asked for; in inference no dropout", chooses,
       [](const Program& p, const Options& o) { return choose(p, forms_of(o.run)); }},
      {"decompose", "composites into parts, as the granularity says", always, decompose_first},
      {"shard", "weights as each rank's part, gathered where they are read", shards_weights,
       [](const Program& p, const Options& o) {
         return shard(p, o.run.parallel.across_replicas());
       }},
      {"autocast", "matrix products in the low dtype, sums and norms in float32", casts,
       [](const Program& p, const Options& o) { return autocast(p, *o.run.precision.autocast); }},
      {"narrow_frozen", "weights that are not trained in the low dtype alone",
       [](const Options& o) { return adapts(o) && casts(o); }, narrow_constants},
      {"keep_nf4", "weights that are not trained in 4 bits, widened in front of products",
       keeps_nf4, keep_frozen_nf4},
      {"autograd", "gradients of the loss by every parameter", differentiates, differentiate},
      {"sum_shards", "gradients in states summed over all ranks, micro-batch by micro-batch",
       [](const Options& o) {
         return o.context.sums_shards && o.run.parallel.replicas() > 1 && !o.context.has_gradients;
       },
       [](const Program& p, const Options& o) {
         return sum_shards(p, o.run.parallel.across_replicas());
       }},
      {"reduce", "gradients and the loss summed over all ranks", divides,
       [](const Program& p, const Options& o) { return reduce(p, o.run.parallel); }},
      {"optimizer", "parameter updates from gradients", steps, update},
  };
}

// Passes that choose what is kept where and how long, and which products and updates are one.
std::vector<Pass> memory_passes() {
  return {
      {"lower", "expands what has no kernel on the device", always, lower},
      {"simplify", "common subexpressions, identities, dead code", always,
       [](const Program& p, const Options&) { return simplify(p); }},
      {"narrow_gathers", "weights gathered in the dtype in which they are read",
       [](const Options& o) { return shards_weights(o) && casts(o); },
       [](const Program& p, const Options&) { return narrow_gathers(p); }},
      {"chunk_loss", "logits, loss and their gradients in chunks of rows",
       [](const Options& o) { return o.run.loss_chunks != 1; }, cut_loss},
      {"chunk_ffn", "feed-forwards in chunks of rows, in forward and in backward",
       [](const Options& o) { return o.run.ffn_chunks != 1; }, cut_ffn},
      {.name = "shadow",
       .doc = "weights kept in the low dtype as well, gradients read as they come",
       .needed = keeps_shadows,
       .run = keep_shadows,
       .compiles = true},
      {.name = "narrow",
       .doc = "gradients of biases summed as products read them, without wide copies in between",
       .needed = [](const Options& o) { return casts(o) && differentiates(o); },
       .run = [](const Program& p, const Options&) { return narrow(p); },
       .compiles = true},
      {.name = "keep_narrow",
       .doc = "narrow values kept for backward, which widens them again",
       .needed = [](const Options& o) { return casts(o) && differentiates(o) && fuses(o); },
       .run = [](const Program& p, const Options&) { return keep_narrow(p); },
       .compiles = true},
      {.name = "assemble_slices",
       .doc = "gradients of slices that cover a tensor written side by side",
       .needed = differentiates,
       .run = [](const Program& p, const Options&) { return assemble_slices(p); },
       .compiles = true},
      {.name = "merge",
       .doc = "one product for weights that lie side by side",
       .needed = always,
       .run = [](const Program& p,
                 const Options& o) { return merge(p, o.run.mode == Mode::kForward); },
       .compiles = true},
      {.name = "pad",
       .doc = "logits with columns of padding, where their rows would not be aligned",
       .needed = pads,
       .run = [](const Program& p, const Options&) { return pad(p); },
       .compiles = true},
      {"quantize", "products of the layers in 8 bits, each operand quantized once",
       [](const Options& o) { return o.run.precision.float8; }, quantize_products},
      {"keep_codes", "codes of weights written by their updates and kept for the next step",
       keeps_codes, [](const Program& p, const Options&) { return keep_codes(p); }},
      {.name = "update_beside",
       .doc = "updates of each layer on a lane of their own, beside the backward of others",
       .needed = updates_beside,
       .run =
           [](const Program& p, const Options& o) {
             return update_beside(
                 p, updates_at_end(o), [&](const OpDef& op) { return has_kernel(o, op); },
                 streams_states(o));
           },
       .compiles = true,
       // Pays where the updates wait for the bus to the host (bench/results/cuda-h200.md).
       .pays = [](const RunSpec& run) { return has_optimizer(run.offload); }},
      {.name = "join",
       .doc = "one launch for the updates of all tensors",
       .needed = updates_at_end,
       .run =
           [](const Program& p, const Options& o) {
             const auto has = [&](const OpDef& op) { return has_kernel(o, op); };
             return streams_states(o) ? join_in_streams(p, has) : join(p, has, o.run.parallel);
           },
       .compiles = true},
      {"update_early", "updates inside backward, as soon as their gradients are there",
       updates_early, [](const Program& p, const Options&) { return update_early(p); }},
      {"offload", "what only updates read in the host's memory", offloads,
       [](const Program& p, const Options&) { return offload(p); }},
      {"recompute", "forward nodes again in backward, so that their results are not kept",
       recomputes, recompute_again},
      {"regather", "weights gathered, or widened, again for backward instead of kept",
       [](const Options& o) { return (shards_weights(o) || keeps_nf4(o)) && differentiates(o); },
       [](const Program& p, const Options&) { return regather(p); }},
      {"offload_activations", "what backward reads of other layers in the host's memory meanwhile",
       offloads_saved,
       [](const Program& p, const Options& o) { return offload_activations(p, o.context.traits); }},
      {.name = "stream_states",
       .doc = "moments and weights of the host's memory copied in and out beside updates of others",
       .needed = streams_states,
       .run = [](const Program& p, const Options&) { return stream_states(p); },
       .compiles = true,
       .pays = [](const RunSpec& run) { return has_optimizer(run.offload); }},
      {"keep_saved", "forward alone, holding what backward would read",
       [](const Options& o) { return o.run.mode == Mode::kForward; },
       [](const Program& p, const Options&) { return keep_saved(p); }},
  };
}

// Kernels that do several things, their operands, and the order.
std::vector<Pass> kernel_passes() {
  return {
      {.name = "overwrite",
       .doc = "loss and gradient of logits as one node, which writes over the logits",
       .needed = trains,
       .run = with_kernels(overwrite),
       .compiles = true},
      {"gemv", "products of one row with the norm, the activation and the sums around them",
       [](const Options& o) {
         return !differentiates(o) && !steps(o) && has_arena(o.run.executor);
       },
       with_kernels(gemv)},
      {.name = "gate",
       .doc = "products that end with SwiGLU or its gradients, where that is faster",
       .needed = always,
       .run =
           [](const Program& p, const Options& o) {
             return gate(
                 p, [&](const OpDef& op) { return has_kernel(o, op); }, gated_product_pays);
           },
       .compiles = true},
      {.name = "fuse",
       .doc = "elementwise ops, rows and the views between them as one kernel",
       .needed = fuses,
       .run = [](const Program& p, const Options&) { return fuse(p); },
       .compiles = true},
      {.name = "epilogue",
       .doc = "products that add to a tensor, where a sum of both would be a launch",
       .needed = always,
       .run =
           [](const Program& p, const Options& o) {
             return epilogue(
                 p, [&](const OpDef& op) { return has_kernel(o, op); },
                 computes_again(p) ? HeadGradient::kFirst : HeadGradient::kLast);
           },
       .compiles = true},
      {"by_parts", "products of float32 on tensor cores, as products of float16 parts",
       [](const Options& o) {
         return o.run.precision.split && o.context.traits.has_product_formats();
       },
       with_kernels(by_parts)},
      {"materialize", "explicit copies where a layout needs one", always,
       [](const Program& p, const Options&) { return materialize(p); }, VerifyStage::kMaterialized},
      {"overlap", "collectives in batches, beside the other nodes", communicates,
       [](const Program& p, const Options& o) {
         return assign_updates(overlap(p, o.run.parallel));
       }},
      {"schedule", "order: constants directly before their first reader", always,
       [](const Program& p, const Options&) { return schedule(p); }, VerifyStage::kBuilt},
  };
}

// All passes, in the order in which they run.
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
  if (run.compile_passes) return names(run, pass.name);
  return has_arena(run.executor) && (!pass.pays || pass.pays(run));
}

bool runs(const Pass& pass, const Options& o) {
  const bool is_on = !pass.compiles || is_asked_for(pass, o.run);
  return is_on && !o.context.disabled.contains(pass.name) && pass.needed(o);
}

// The program after all passes that come after this one, and before another if one is named.
Program finished(Program program, const Options& options, std::string_view after,
                 std::string_view before) {
  const std::vector<Pass>& all = passes();
  auto pass = std::ranges::find(all, after, &Pass::name);
  TRACESTEP_CHECK(pass != all.end(), "no pass {}", after);
  for (++pass; pass != all.end() && pass->name != before; ++pass) {
    if (runs(*pass, options)) program = pass->run(program, options);
  }
  return program;
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

// The bytes of one rank's gradients, in the dtype in which they are summed.
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
  Options options{run, context};
  const bool is_begun = !context.start_after.empty();
  const Program trained =
      adapts(options) && !is_begun ? adapt(program, run.lora, run.frozen) : Program();
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
