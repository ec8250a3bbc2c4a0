// The attention benchmark: softmax(q kᵀ/√d) v by itself, over widths and contexts. Forward and
// backward are timed separately, and the bytes held between them are measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/signals.h"
#include "lab/measure/measurement.h"
#include "lab/measure/rounds.h"
#include "lab/measure/row_facts.h"
#include "session/devices.h"
#include "spec/protocol.h"

namespace tracestep {

// The tensors of B·H·T² that are alive when backward starts. Backward always reads the attention
// weights. `exp`: softmax runs in parts, and its gradient reads the exponentials too. `scores`:
// they are kept although backward does not read them, as by a variable in the caller's code.
struct SavedScores {
  bool scores = false;
  bool exp = false;

  std::int64_t count() const { return 1 + (scores ? 1 : 0) + (exp ? 1 : 0); }
};
std::string name_of(const SavedScores& saved);  // "scores+exp+weights"
// The inverse, with the names in any order. Error{kUsage} naming `where` for unknown or repeated
// names, or without "weights".
SavedScores parse_saved(const std::string& where, const std::string& text);

struct AttentionSpec {
  RunSpec run = {.shape = {.batch = 8, .context = 256}};  // its model and mode are ignored
  std::int64_t width = 16;                                // D, of each head
  std::int64_t heads = 1;                                 // H; q, k and v are [B,T,D] with one
  bool causal = true;
  SavedScores saved = {};  // of the naive form; flash saves none
  int copy = 1;            // of the same cell, measured as another one
  // Its noise criterion is not used, and max_seconds limits any timed steps; 0: no limit.
  Protocol protocol = {.steps = 100, .recorded_steps = 3, .max_seconds = 0};
};

// name_of() the saved tensors; "lse" for the flash form, which saves one number per row of scores.
std::string saved_name(const AttentionSpec& spec);
// Width, mask and form, as tables and notes call a cell.
std::string label_of(const AttentionSpec& spec);

// A part of a step, timed from an idle device until the device is idle again.
struct AttentionPart {
  std::vector<double> samples_ms, warmup_ms;
  std::vector<double> recorded_ms;  // sum of kernel times of each recorded step
  double busy_ms = 0;               // the median of these
  std::int64_t flops = 0;           // of matrix products
  std::int64_t launches = 0;
};

struct AttentionResult {
  AttentionSpec spec;
  std::string device;
  Status status = Status::kOk;
  std::string detail;
  bool is_asynchronous = false;  // the device computes while the host goes on
  bool computes = true;
  // How many samples each visit took, where a driver visited the cell several times (add_visit()).
  std::vector<double> visits = {};
  AttentionPart forward, backward;
  // Times further steps without a stop between the parts: both parts and the two small kernels of
  // the loss.
  AttentionPart whole;
  // Live requested bytes when forward is done, and at the peak of the whole step.
  std::int64_t before_backward_bytes = 0, predicted_before_backward_bytes = 0;
  std::int64_t peak_bytes = 0, predicted_peak_bytes = 0;
  std::int64_t saved_bytes = 0;  // of these, tensors of B·H·T², by the program
  double instrumented_wall_ms = 0;
  DeviceFacts facts_before, facts_after;
  HostAround host;
  double roof_tflops = 0;                        // for the validity checker; 0: not known
  std::optional<double> roof_others_cores = {};  // kept busy by others while it was measured
};

// The highest speed of its parts; 0: none was timed.
double reached_tflops(const AttentionResult& result);

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

// Bytes alive before `node` allocates anything, by the buffer plan.
std::int64_t live_bytes_before(const Program& program, NodeId node);

// Out of memory is a result, as in measure_cell().
AttentionResult measure_attention(const DeviceFactory& make_device, const AttentionSpec& spec,
                                  const StopSignal* stop = nullptr);

// For a driver that measures cells in rounds (lab/measure/rounds.h). Joining two visits wants both
// ok; a key has everything that identifies a cell, under the names of its flags.
AttentionResult visit(const DeviceFactory& make_device, const AttentionSpec& spec,
                      const StopSignal* stop);
void add_visit(AttentionResult& result, const AttentionResult& later);
double visit_weight(const AttentionSpec& spec);  // elements of T²
Json key_of(const AttentionSpec& spec);
std::vector<double> beside_samples(const AttentionResult& result);  // of whole steps, if it is ok
using AttentionRounds = CellRounds<AttentionSpec, AttentionResult>;

// The bytes of one tensor of B·H·T², divided by T²: B·H elements of the dtype that softmax runs in.
double square_bytes(const AttentionSpec& spec);

// The bytes that a cell would take, predicted without a run; with an arena, it and the leaves.
struct AttentionBytes {
  std::int64_t before_backward = 0, peak = 0;
};
AttentionBytes predict_attention(const AttentionSpec& spec, const Device& device);
AttentionBytes planned_bytes(const AttentionProgram& program, ExecutorKind executor,
                             const Device& device);
// Bytes of the tensors of B·H·T² that are alive before backward.
std::int64_t square_bytes_saved(const AttentionProgram& program, const AttentionSpec& spec);

}  // namespace tracestep
