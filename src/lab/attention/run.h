// The attention benchmark: softmax(q kᵀ/√d) v by itself, over widths and contexts. Forward and
// backward are timed separately, and the bytes held between them are measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/signals.h"
#include "lab/measure/parts.h"
#include "lab/measure/rounds.h"
#include "session/devices.h"
#include "spec/protocol.h"

namespace tracestep {

// Which tensors of B·H·T² are alive when backward starts. Backward always reads the attention
// weights. `exp`: softmax is computed in primitive ops, and its gradient reads the exponentials
// too. `scores`: the scores are kept though backward does not read them, as by a variable in a
// user's code.
struct SavedScores {
  bool scores = false;
  bool exp = false;

  std::int64_t count() const { return 1 + (scores ? 1 : 0) + (exp ? 1 : 0); }
};
std::string name_of(const SavedScores& saved);  // "scores+exp+weights"
// The inverse of name_of(), with the names in any order. Throws Error{kUsage} naming `where` for an
// unknown or repeated name, or without "weights".
SavedScores parse_saved(const About& where, const std::string& text);

struct AttentionSpec {
  RunSpec run = {.shape = {.batch = 8, .context = 256}};  // The run's model and mode are ignored.
  std::int64_t width = 16;                                // D, the width of each head.
  std::int64_t heads = 1;  // H, the number of heads; with one head q, k and v are [B,T,D].
  bool causal = true;
  SavedScores saved = {};  // For the naive form only; flash attention saves none of them.
  int copy = 1;  // Numbers cells that are otherwise equal, so that one is measured several times.
  // The noise criterion is not used. max_seconds limits the timed steps; 0: no limit.
  Protocol protocol = {.steps = 100, .recorded_steps = 3, .max_seconds = 0};
};

// Returns name_of(saved); "lse" for the flash form, which saves one number for each row of scores.
std::string saved_name(const AttentionSpec& spec);
// Names a cell in tables and notes by width, mask and form.
std::string label_of(const AttentionSpec& spec);

struct AttentionResult : PartsResult {
  AttentionSpec spec;
  // The bytes of B·H·T² tensors that are alive before backward, by the program.
  std::int64_t saved_bytes = 0;
};

// Returns the program of attention: parameters q, k and v, and y's gradient as input "upstream".
PartsProgram attention_program(const AttentionSpec& spec, const Device& device);

// Measures one cell. Running out of memory is a result, not an exception, as in measure_cell().
AttentionResult measure_attention(const DeviceFactory& make_device, const AttentionSpec& spec,
                                  const StopSignal* stop = nullptr);

// Measures one visit of a cell. With the functions below, a driver measures cells in rounds
// (lab/measure/rounds.h). A key has all that identifies a cell, by the names of its flags.
AttentionResult visit(const DeviceFactory& make_device, const AttentionSpec& spec,
                      const StopSignal* stop);
// Returns B·H·T²·D, to which a visit's multiplications, and so about its time, are proportional.
double visit_weight(const AttentionSpec& spec);
Json key_of(const AttentionSpec& spec);
// Returns the times of the cell's whole steps; empty if the cell failed.
std::vector<double> beside_samples(const AttentionResult& result);

// The bytes of one tensor of B·H·T², divided by T²: B·H elements of the dtype that softmax runs in.
double square_bytes(const AttentionSpec& spec);

// The bytes that a cell would take, predicted without a run.
PartsBytes predict_attention(const AttentionSpec& spec, const Device& device);
// The bytes of the tensors of B·H·T² that are alive before backward.
std::int64_t square_bytes_saved(const PartsProgram& program, const AttentionSpec& spec);

}  // namespace tracestep
