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
SavedScores parse_saved(const About& where, const std::string& text);

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

struct AttentionResult : PartsResult {
  AttentionSpec spec;
  std::int64_t saved_bytes = 0;  // before backward, tensors of B·H·T², by the program
};

// The program: q, k, v as parameters, the gradient of y as the input "upstream".
PartsProgram attention_program(const AttentionSpec& spec, const Device& device);

// Out of memory is a result, as in measure_cell().
AttentionResult measure_attention(const DeviceFactory& make_device, const AttentionSpec& spec,
                                  const StopSignal* stop = nullptr);

// For a driver that measures cells in rounds (lab/measure/rounds.h); a key has everything that
// identifies a cell, under the names of its flags.
AttentionResult visit(const DeviceFactory& make_device, const AttentionSpec& spec,
                      const StopSignal* stop);
double visit_weight(const AttentionSpec& spec);  // elements of T²
Json key_of(const AttentionSpec& spec);
std::vector<double> beside_samples(const AttentionResult& result);  // of whole steps, if it is ok

// The bytes of one tensor of B·H·T², divided by T²: B·H elements of the dtype that softmax runs in.
double square_bytes(const AttentionSpec& spec);

// The bytes that a cell would take, predicted without a run.
PartsBytes predict_attention(const AttentionSpec& spec, const Device& device);
// Bytes of the tensors of B·H·T² that are alive before backward.
std::int64_t square_bytes_saved(const PartsProgram& program, const AttentionSpec& spec);

}  // namespace tracestep
