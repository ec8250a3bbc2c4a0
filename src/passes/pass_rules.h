// The rules of the passes: when a run needs a pass, and with which arguments it then runs. Each is
// defined in the file of its pass; passes/pipeline.cpp names them in the order of the passes.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "passes/pipeline.h"
#include "passes/recompute_budget.h"

namespace tracestep {

// The run that a program is made for, as passes read it. The member functions answer what the rules
// of several passes ask.
struct PassOptions {
  RunSpec run;
  PassContext context;
  // The solvers of memory budgets, never nullptr: those of the context, or new ones for this run.
  std::shared_ptr<BudgetSolvers> solvers =
      context.solvers != nullptr ? context.solvers : std::make_shared<BudgetSolvers>();

  bool always() const { return true; }
  // True if backward is added to the program. The program that only updates has no backward.
  bool differentiates() const { return run.mode != Mode::kInference && !context.has_gradients; }
  // True in mixed precision: products run in a narrower dtype than the parameters have.
  bool casts() const { return run.precision.autocast.has_value(); }
  bool updates() const { return run.mode == Mode::kStep; }
  bool updates_early() const { return updates() && run.updates == UpdateTime::kEarly; }
  bool updates_at_end() const { return updates() && run.updates == UpdateTime::kEnd; }
  // True for a step or part of one: micro-batches keep gradients for the program that updates, and
  // forward and backward measured alone are what the step runs of them.
  bool trains() const { return updates() || run.mode == Mode::kForwardBackward; }
  // True if some weights are frozen, or if adapters are added to products.
  bool adapts() const { return (run.lora.is_on() || run.frozen.any()) && !context.has_gradients; }
  // True if tensor parallelism divides the weights.
  bool splits() const { return run.parallel.is_divided() && !context.has_gradients; }
  // True if each rank stores only its part of every weight (ZeRO-3).
  bool shards_weights() const {
    return run.parallel.is_on() && run.parallel.shards_weights() && !context.has_gradients;
  }
  // True if the loss is multiplied by a scale, and the gradients with it.
  bool scales_gradients() const;

  bool has_kernel(const OpDef& op) const {
    return context.has_kernel ? context.has_kernel(op) : !op.always_decompose;
  }
  // True if the user named the compile pass: it then also runs on devices that have no use for it.
  bool names(const std::string& pass) const {
    return run.compile_passes && run.compile_passes->contains(pass);
  }
  // The names of a captured module's constants, which keep the dtype that the module gave them.
  std::set<std::string> own_constants() const;
};

// Runs on `program` the passes that this run needs, from the one after `after` to the one before
// `before` (empty: to the end). Defined in passes/pipeline.cpp.
Program run_passes(Program program, const PassOptions& options, std::string_view after,
                   std::string_view before = {});

// True if the run needs the pass named beside the function. PassOptions has the rules of others.
bool chooses_forms(const PassOptions& o);         // choose
bool narrows_frozen(const PassOptions& o);        // narrow_frozen
bool keeps_nf4(const PassOptions& o);             // keep_nf4
bool sums_shards(const PassOptions& o);           // sum_shards
bool reduces(const PassOptions& o);               // reduce
bool narrows_gathers(const PassOptions& o);       // narrow_gathers
bool chunks_loss(const PassOptions& o);           // chunk_loss
bool chunks_ffn(const PassOptions& o);            // chunk_ffn
bool keeps_shadows(const PassOptions& o);         // shadow
bool narrows_gradients(const PassOptions& o);     // narrow
bool keeps_narrow(const PassOptions& o);          // keep_narrow
bool pads(const PassOptions& o);                  // pad
bool quantizes(const PassOptions& o);             // quantize
bool keeps_codes(const PassOptions& o);           // keep_codes
bool updates_beside(const PassOptions& o);        // update_beside
bool offloads(const PassOptions& o);              // offload
bool recomputes(const PassOptions& o);            // recompute
bool regathers(const PassOptions& o);             // regather
bool offloads_activations(const PassOptions& o);  // offload_activations
bool streams_states(const PassOptions& o);        // stream_states
bool keeps_saved(const PassOptions& o);           // keep_saved
bool decodes_rows(const PassOptions& o);          // gemv
bool fuses(const PassOptions& o);                 // fuse
bool fuses_updates(const PassOptions& o);
bool computes_by_parts(const PassOptions& o);  // by_parts
bool overlaps(const PassOptions& o);           // overlap

// True if the run needs `fuse`, and it is neither switched off nor left out of the compile passes.
bool will_fuse(const PassOptions& o);

// Run the passes with the arguments that the run's options give them.
Program adapt(const Program& p, const PassOptions& o);
Program split(const Program& p, const PassOptions& o);
Program choose(const Program& p, const PassOptions& o);
Program decompose(const Program& p, const PassOptions& o);
Program shard(const Program& p, const PassOptions& o);
Program autocast(const Program& p, const PassOptions& o);
Program narrow_frozen(const Program& p, const PassOptions& o);
Program keep_nf4(const Program& p, const PassOptions& o);
Program autograd(const Program& p, const PassOptions& o);
Program sum_shards(const Program& p, const PassOptions& o);
Program reduce(const Program& p, const PassOptions& o);
Program optimizer(const Program& p, const PassOptions& o);
Program lower(const Program& p, const PassOptions& o);  // decompose, for the device's kernels
Program chunk_loss(const Program& p, const PassOptions& o);
Program chunk_ffn(const Program& p, const PassOptions& o);
Program shadow(const Program& p, const PassOptions& o);
Program merge(const Program& p, const PassOptions& o);
Program quantize(const Program& p, const PassOptions& o);
Program update_beside(const Program& p, const PassOptions& o);
Program join(const Program& p, const PassOptions& o);
Program recompute(const Program& p, const PassOptions& o);
Program offload_activations(const Program& p, const PassOptions& o);
Program stream_states(const Program& p, const PassOptions& o);
Program gate(const Program& p, const PassOptions& o);
Program epilogue(const Program& p, const PassOptions& o);
Program overlap(const Program& p, const PassOptions& o);

}  // namespace tracestep
