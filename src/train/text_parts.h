// Divides a text into parts that together read each token once, for its mean loss.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "run/run_spec.h"
#include "tokens/packed_rows.h"

namespace tracestep {

// Consecutive rows that one run of a program reads.
struct TextPart {
  std::int64_t start = 0;  // The index of its first token.
  BatchShape shape = {};
  bool repeats = false;  // True: the part is one row, repeated for each row of the batch.
  // The packed rows, of which `start` is the first one to read; nullptr: rows of a plain text.
  std::shared_ptr<const PackedRows> packed = {};

  // The number of tokens whose loss the part gives.
  std::int64_t tokens() const { return (repeats ? 1 : shape.batch) * shape.context; }
};

// The parts of a text: whole batches, then the remaining rows, then a shorter row with the
// remaining tokens. `batches`: the most parts, 0: all. A batch has a multiple of `divisor` rows; if
// fewer remain, each is a part that repeats its row. Throws Error{kInput} for a text of one token.
std::vector<TextPart> parts_of(const TokenSource& tokens, BatchShape shape, std::int64_t batches,
                               std::int64_t divisor = 1);
// The parts of a text for a run, made by parts_of() with the run's shape; of packed rows, if the
// run packs documents; of whole batches only, if the run's model is a captured module, whose shape
// is fixed. Throws Error{kInput} also for a text without a whole batch.
std::vector<TextPart> parts_for(const RunSpec& run, const TokenSourcePtr& tokens,
                                std::int64_t batches, std::int64_t divisor = 1);
std::int64_t tokens_of(const std::vector<TextPart>& parts);

Batch batch_of(const TextPart& part, const TokenSource& tokens);
// How many targets of a part's batch count; if the part repeats a row, the row counts once.
inline double counted_in(const TextPart& part, const Batch& batch) {
  return static_cast<double>(batch.counted) /
         static_cast<double>(part.repeats ? part.shape.batch : 1);
}

}  // namespace tracestep
