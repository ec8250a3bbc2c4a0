// The ordered pipeline: the passes that turn a forward program into what runs, and what each did.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/op_def.h"
#include "passes/autograd.h"
#include "passes/granularity.h"
#include "passes/offload.h"
#include "passes/optimizer.h"
#include "passes/parallel.h"
#include "passes/recomputation.h"
#include "passes/update_early.h"
#include "planning/device_traits.h"

namespace tracestep {

// How attention is computed; the names are those of the op's forms.
enum class AttentionForm : std::uint8_t {
  kNaive,  // two matrix products around a softmax
  kFlash,  // one kernel, tile by tile, without the matrix of scores
};

inline constexpr AttentionForm kAllAttentionForms[] = {AttentionForm::kNaive,
                                                       AttentionForm::kFlash};

enum class Mode : std::uint8_t { kInference, kForward, kForwardBackward, kStep };
inline constexpr Mode kAllModes[] = {Mode::kInference, Mode::kForward, Mode::kForwardBackward,
                                     Mode::kStep};

std::string_view name_of(AttentionForm form);
std::string_view name_of(Mode mode);

struct PipelineOptions {
  Granularity granularity = Granularity::kFused;
  Mode mode = Mode::kInference;
  GradientKind gradients = GradientKind::kTransient;
  // Gradients come from earlier micro-batches, as states: this step only sums them over ranks and
  // updates.
  bool has_gradients = false;
  OptimizerOptions optimizer = {};  // its loss scaling also scales what autograd starts from
  AttentionForm attention = AttentionForm::kNaive;
  std::optional<DType> autocast = {};  // low dtype of mixed precision; none: off
  bool by_parts = false;               // products of float32 as passes/by_parts.h has them
  // Also runs compile_passes(), which save launches and traffic. `shadow` and `join` change no
  // value; `pad`, `overwrite` and `fuse` may add up in another order; `merge` rounds sums of
  // products once; `epilogue` does not round products before they are added.
  bool compile = false;
  // Compile passes that the user named: they also run on devices that have no use for them.
  std::set<std::string> asked = {};
  UpdateTime updates = UpdateTime::kEnd;  // early ones are never joined, and write no shadows
  Offload offload = Offload::kNone;       // only where the device has memory of its own
  Recomputation recompute = {};           // what is computed again in backward
  std::int64_t loss_chunks = 1;           // parts that the loss is computed in; 0: see chunk_loss()
  // How the step is divided among ranks; the forward program is one rank's share of it, and its
  // loss one rank's share of the loss.
  Parallel parallel = {};
  // Whether gradients in states are summed over the replicas in each run (passes/sum_shards.h).
  bool sums_shards = false;
  // Whose memory a budget of `recompute` is for: the device, and whether an arena holds the
  // buffers.
  DeviceTraits traits = {};
  bool arena = false;
  // Whether the device has a kernel; empty: for every op that is not always decomposed.
  std::function<bool(const OpDef&)> has_kernel = {};
  std::set<std::string> disabled = {};  // passes that are switched off
  std::string stop_after = {};          // last pass to run; empty: all
  bool verify = true;                   // after every pass
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
// Names of those that run only when `compile` is set, in order.
std::vector<std::string> compile_passes();
// The compile passes that run by default: those worth their cost in this step, on any device.
std::vector<std::string> paying_passes(const PipelineOptions& options);

// Throws Error{kUsage} for an unknown pass name (naming the closest), whatever a pass throws, and
// std::logic_error from the verifier.
PipelineResult run_pipeline(const Program& program, const PipelineOptions& options);

}  // namespace tracestep
