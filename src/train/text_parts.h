// A text in parts of which each token is read once, for its mean loss.
#pragma once

#include <cstdint>
#include <vector>

#include "run/run_spec.h"
#include "tokens/batches.h"

namespace tracestep {

// Rows one behind the other: what one run of a program reads.
struct TextPart {
  std::int64_t start = 0;  // its first token
  BatchShape shape = {};
  bool repeats = false;  // one row, as often as the batch has rows

  // The number of tokens whose loss it gives.
  std::int64_t tokens() const { return (repeats ? 1 : shape.batch) * shape.context; }
};

// Whole batches, then the rows that are left, then a row as long as what is left; `batches`: so
// many parts at most, 0: all. A batch has a multiple of `divisor` rows: of fewer, each is a part
// that repeats it. Errors: kInput for a text of one token.
std::vector<TextPart> parts_of(const TokenSource& tokens, BatchShape shape, std::int64_t batches,
                               std::int64_t divisor = 1);
// As parts_of(), for the shape of the run; of a captured module, which has one shape, whole batches
// alone. Errors: kInput also for a text without one.
std::vector<TextPart> parts_for(const RunSpec& run, const TokenSource& tokens, std::int64_t batches,
                                std::int64_t divisor = 1);
std::int64_t tokens_of(const std::vector<TextPart>& parts);

Batch batch_of(const TextPart& part, const TokenSource& tokens);

}  // namespace tracestep
