// Batches: which tokens a given step trains on. A pure function of the step, so that a resumed run
// continues exactly without saving any position.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/host_tensor.h"
#include "tokens/token_file.h"

namespace tracestep {

enum class Order { kSequential, kShuffled };
inline constexpr Order kAllOrders[] = {Order::kSequential, Order::kShuffled};
constexpr std::string_view name_of(Order order) {
  return order == Order::kSequential ? "sequential" : "shuffled";
}

struct Batch {
  HostTensor tokens, targets;  // i64 [B,T]; each target is the token that follows
};

class Batches {
 public:
  struct Options {
    std::int64_t batch = 1, context = 1;  // B, T
    Order order = Order::kSequential;
    std::uint64_t seed = 0;
  };

  // Errors: kUsage when B or T is not positive or B*T is too large; kInput when there are fewer
  // than T + 1 tokens.
  Batches(TokenSourcePtr tokens, const Options& options);

  // The batch of step `step` >= 0. In sequential order row b starts at token (step*B + b)*T,
  // wrapping around at the end of the stream; shuffled, it starts at a random token with at least T
  // more after it.
  Batch at(std::int64_t step) const;
  // The first token of row number `row` = step*B + b.
  std::int64_t start_of(std::int64_t row) const;

 private:
  TokenSourcePtr tokens_;
  Options options_;
};

}  // namespace tracestep
