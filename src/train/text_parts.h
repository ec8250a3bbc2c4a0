// A text in parts of which each token is read once, for its mean loss.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "run/run_spec.h"
#include "tokens/packed_rows.h"

namespace tracestep {

// Rows one behind the other: what one run of a program reads.
struct TextPart {
  std::int64_t start = 0;  // its first token
  BatchShape shape = {};
  bool repeats = false;  // one row, as often as the batch has rows
  // Packed rows, of which `start` is the first; nullptr: those of a text.
  std::shared_ptr<const PackedRows> packed = {};

  // The number of tokens whose loss it gives.
  std::int64_t tokens() const { return (repeats ? 1 : shape.batch) * shape.context; }
};

// Whole batches, then the rows that are left, then a row as long as what is left; `batches`: so
// many parts at most, 0: all. A batch has a multiple of `divisor` rows: of fewer, each is a part
// that repeats it. Errors: kInput for a text of one token.
std::vector<TextPart> parts_of(const TokenSource& tokens, BatchShape shape, std::int64_t batches,
                               std::int64_t divisor = 1);
// As parts_of(), for the shape of the run, and of rows of documents where it packs them; of a
// captured module, which has one shape, whole batches alone. Errors: kInput also for a text without
// one.
std::vector<TextPart> parts_for(const RunSpec& run, const TokenSourcePtr& tokens,
                                std::int64_t batches, std::int64_t divisor = 1);
std::int64_t tokens_of(const std::vector<TextPart>& parts);

Batch batch_of(const TextPart& part, const TokenSource& tokens);
// The number of targets of a part's batch that count; each once, where the part repeats a row.
inline double counted_in(const TextPart& part, const Batch& batch) {
  return static_cast<double>(batch.counted) /
         static_cast<double>(part.repeats ? part.shape.batch : 1);
}

}  // namespace tracestep
