// The pipeline: the passes that turn a forward program into the program that runs, in order, and a
// report of what each did.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ir/op_def.h"
#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep {

class BudgetSolvers;  // passes/recompute_budget.h

// What passes need to know besides the run for which they make a program.
struct PassContext {
  DeviceTraits traits = {};
  // Whether the device has a kernel for an op; empty: it has one for every op that is not always
  // decomposed.
  std::function<bool(const OpDef&)> has_kernel = {};
  // True: gradients come from earlier micro-batches, as states, and this program only sums them
  // over ranks and updates.
  bool has_gradients = false;
  // True if gradients in states are summed over the replicas in each run (passes/sum_shards.cpp).
  bool sums_shards = false;
  // True if updated bfloat16 weights are rounded stochastically.
  bool rounds_weights = false;
  // Solvers of memory budgets that several runs of the passes share; nullptr: each has its own.
  std::shared_ptr<BudgetSolvers> solvers = {};
  std::set<std::string> disabled = {};  // passes that are switched off
  std::string stop_after = {};          // The last pass to run; empty: all passes run.
  // The last pass that has run on the given program: only the passes after it run. `run.parallel`
  // must then have a bucket size other than kByModel. Empty: no pass has run.
  std::string start_after = {};
  // Called by a pass to explain its choice; run_pipeline() adds the text to the report.
  std::function<void(std::string)> note = {};
};

struct PassReport {
  std::string name;
  std::string doc;
  double ms = 0.0;
  bool ran = false;      // false: switched off, or not needed in this mode
  bool changed = false;  // found by comparing the programs before and after
  std::int64_t nodes_before = 0, nodes_after = 0;
  std::string note = {};  // What the pass chose, and how good the choice is; empty for most passes.
};

struct PipelineResult {
  Program program;
  std::vector<PassReport> reports;
};

// The names of all passes in order, each with a description in one line.
std::vector<std::pair<std::string, std::string>> pipeline_passes();
// The names of the passes that save launches and memory traffic and only run if the run asks for
// them, in order. `shadow`, `join` and `gate` change no value; `pad`, `overwrite` and `fuse` may
// add up in another order; `merge` rounds sums of products once; `epilogue` does not round products
// before they are added.
std::vector<std::string> compile_passes();
// The compile passes that `run` asks for: the ones it names; else, with an arena, those that are
// worth their cost in this step on any device; else none.
std::vector<std::string> compile_passes_of(const RunSpec& run);

// Runs the passes on a forward program, which is one rank's share with that rank's share of the
// loss. Throws Error{kUsage} for an unknown pass name (naming the closest), whatever a pass throws,
// and std::logic_error from the verifier.
PipelineResult run_pipeline(const Program& program, const RunSpec& run,
                            const PassContext& context = {});

}  // namespace tracestep
