// The ordered pipeline: the passes that turn a forward program into what runs, and what each did.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ir/op_def.h"
#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep {

// Facts that passes need besides the run for which they make a program.
struct PassContext {
  DeviceTraits traits = {};
  // True if the device has a kernel; empty: it has one for every op that is not always decomposed.
  std::function<bool(const OpDef&)> has_kernel = {};
  // Gradients come from earlier micro-batches, as states: this step only sums them over ranks and
  // updates.
  bool has_gradients = false;
  // True if gradients in states are summed over the replicas in each run (passes/sum_shards.cpp).
  bool sums_shards = false;
  // True if updated weights in bfloat16 are rounded at random.
  bool rounds_weights = false;
  std::set<std::string> disabled = {};  // passes that are switched off
  std::string stop_after = {};          // last pass to run; empty: all
  // The program is what the passes up to this one have made, `run.parallel` with its bucket; empty:
  // what was built.
  std::string start_after = {};
  // Takes what a pass has to say about its choice; run_pipeline() puts it into the report.
  std::function<void(std::string)> note = {};
};

struct PassReport {
  std::string name;
  std::string doc;
  double ms = 0.0;
  bool ran = false;      // false: switched off, or not needed in this mode
  bool changed = false;  // found by comparing the programs before and after
  std::int64_t nodes_before = 0, nodes_after = 0;
  std::string note = {};  // what the pass chose, and how good that is; empty for most
};

struct PipelineResult {
  Program program;
  std::vector<PassReport> reports;
};

// Names and one-line descriptions in order.
std::vector<std::pair<std::string, std::string>> pipeline_passes();
// Names of the passes that save launches and traffic, and run where the run asks for them, in
// order. `shadow`, `join` and `gate` change no value; `pad`, `overwrite` and `fuse` may add up in
// another order; `merge` rounds sums of products once; `epilogue` does not round products before
// they are added.
std::vector<std::string> compile_passes();
// The compile passes that `run` asks for: the ones it names; else, with an arena, those that are
// worth their cost in this step on any device; else none.
std::vector<std::string> compile_passes_of(const RunSpec& run);

// The forward program, one rank's share of it with that rank's share of the loss, as what runs.
// Throws Error{kUsage} for an unknown pass name (naming the closest), whatever a pass throws, and
// std::logic_error from the verifier.
PipelineResult run_pipeline(const Program& program, const RunSpec& run,
                            const PassContext& context = {});

}  // namespace tracestep
