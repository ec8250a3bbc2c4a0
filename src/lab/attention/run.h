// The attention benchmark: softmax(q kᵀ/√d) v by itself, over widths and contexts, forward apart
// from backward, with the bytes that stand between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/signals.h"
#include "lab/measure/measurement.h"
#include "session/devices.h"

namespace tracestep {

// The N² tensors that are alive when backward starts. Backward reads the weights; `exp` makes
// softmax run in parts, whose gradient reads the exponentials too; `scores` are held though nobody
// reads them, as a variable of the caller holds them.
struct SavedScores {
  bool scores = false;
  bool exp = false;

  std::int64_t count() const { return 1 + (scores ? 1 : 0) + (exp ? 1 : 0); }
};
std::string name_of(const SavedScores& saved);  // "scores+exp+weights"
// In any order. Error{kUsage} naming `where`: unknown or repeated names, no weights.
SavedScores parse_saved(const std::string& where, const std::string& text);

struct AttentionSpec {
  RunSpec run = {.shape = {.batch = 8, .context = 256}};  // its model and mode do not matter
  std::int64_t width = 16;                                // D; there are no heads
  bool causal = true;
  SavedScores saved = {};  // of the naive form; flash saves none
  int warmup = 5, steps = 100;
  double max_seconds = 0;  // of timed steps; 0: no end but `steps`
};

// "lse" for the flash form: one number for each row of scores.
std::string saved_name(const AttentionSpec& spec);

// One part of a step: its own times, from a device that is idle to one that is idle again.
struct AttentionPart {
  std::vector<double> samples_ms, warmup_ms;
  double busy_ms = 0;      // sum of kernel times, median of three recorded steps
  std::int64_t flops = 0;  // of matrix products
  std::int64_t launches = 0;
};

struct AttentionResult {
  AttentionSpec spec;
  std::string device;
  Status status = Status::kOk;
  std::string detail;
  bool computes = true;
  AttentionPart forward, backward;
  // Steps of their own that stop nowhere: both parts, with the two small kernels of the loss.
  AttentionPart whole;
  // Live requested bytes when forward is done, and at the fullest moment of the whole step.
  std::int64_t before_backward_bytes = 0, predicted_before_backward_bytes = 0;
  std::int64_t peak_bytes = 0, predicted_peak_bytes = 0;
  std::int64_t saved_bytes = 0;  // N² tensors among the former, by the program
  double instrumented_wall_ms = 0;
  DeviceFacts facts_before, facts_after;
  double roof_tflops = 0;  // for the validity checker; 0: not known
};

// The program: q, k, v as parameters, the gradient of y as the input "upstream", and a loss,
// Σ y·upstream, whose kernels are in neither part.
struct AttentionProgram {
  Program program;
  NodeId forward_end = kNoNode;     // the first kernel that is not of the forward part
  NodeId backward_begin = kNoNode;  // the first of the backward part
  bool is_forward(NodeId node) const { return node < forward_end; }
  bool is_backward(NodeId node) const { return node >= backward_begin; }
};
AttentionProgram attention_program(const AttentionSpec& spec, const Device& device);

// Bytes alive before `node` allocates anything, by the storage plan.
std::int64_t live_bytes_before(const Program& program, NodeId node);

// Out of memory is a result, as in measure_cell().
AttentionResult measure_attention(const DeviceFactory& make_device, const AttentionSpec& spec,
                                  const StopSignal* stop = nullptr);

// What it would take, without a run.
struct AttentionBytes {
  std::int64_t before_backward = 0, peak = 0;
};
AttentionBytes predict_attention(const AttentionSpec& spec, const Device& device);

}  // namespace tracestep
