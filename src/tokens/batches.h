// Decides which tokens each training step reads. This only depends on the step's number, so a
// resumed run continues exactly without a saved position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "base/host_tensor.h"
#include "tokens/token_file.h"

namespace tracestep {

enum class Order { kSequential, kShuffled };
TRACESTEP_WORDS(Order, "sequential", "shuffled");
// The target of a position whose loss does not count.
inline constexpr std::int64_t kNoTarget = -100;

struct Batch {
  HostTensor tokens, targets;  // i64 [B,T]; each target is the token that follows, or kNoTarget
  // For packed rows, i64 [B,T]: where in its row the document at each position begins and ends.
  HostTensor starts = {}, ends = {};
  std::int64_t counted = 0;  // The number of targets that count.
  double loss_count = 0.0;  // The number by which losses are divided, for one rank and micro-batch.

  bool is_packed() const { return !starts.bytes.empty(); }
};

// Makes `rows` rows of `context` zeros, every target kNoTarget. `packed`: with zeros as `starts`
// and `ends`.
Batch empty_batch(std::int64_t rows, std::int64_t context, bool packed = false);
// Sets the positions [at, at + read.size() - 1) of the batch, counted through its rows, to the
// tokens in `read`, with the tokens that follow as targets.
void set_places(Batch& batch, std::int64_t at, std::span<const std::int64_t> read);

class PackedRows;

class Batches {
 public:
  struct Options {
    std::int64_t batch = 1, context = 1;  // B, T
    Order order = Order::kSequential;
    std::uint64_t seed = 0;
    bool packed = false;  // True: rows hold whole documents.
  };

  // Batches of these tokens. Errors: kUsage when B or T is not positive or B*T is too large; kInput
  // when there are fewer than T + 1 tokens.
  Batches(TokenSourcePtr tokens, const Options& options);

  // The batch of step `step` >= 0. In sequential order row b starts at token (step*B + b)*T, and
  // wraps around at the end of the stream; shuffled, it starts at a random token with at least T
  // more after it. Packed rows follow each other in a random order, which changes each time that
  // all were read.
  Batch at(std::int64_t step) const;
  // The packed rows; nullptr: the text is not packed.
  const PackedRows* packed() const { return packed_.get(); }
  // The first token of row number `row` = step*B + b.
  std::int64_t start_of(std::int64_t row) const;

 private:
  std::int64_t packed_row(std::int64_t number) const;

  TokenSourcePtr tokens_;
  Options options_;
  std::shared_ptr<const PackedRows> packed_;
  // The round for which `order_` was shuffled. Only one thread may use it.
  mutable std::int64_t shuffled_ = -1;
  mutable std::vector<std::int64_t> order_;
};

}  // namespace tracestep
