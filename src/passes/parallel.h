// How a step is divided among ranks: the choice, as people write it.
#pragma once

#include <cstdint>
#include <string>

namespace tracestep {

// Data parallel: every rank has its share of the batch, and gradients are summed over all ranks.
struct Parallel {
  static constexpr std::int64_t kEachTensor = 0, kAllTensors = -1;

  int ranks = 1;
  // What each rank holds only its part of: 0 nothing, 1 the optimizer's states, 2 gradients as
  // well, 3 weights as well.
  int shard = 0;
  // Gradients are summed together until they are this many bytes; or kEachTensor, kAllTensors.
  // Where gradients are sharded, each tensor is summed by itself.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;

  bool is_on() const { return ranks > 1; }
  bool shards_optimizer() const { return shard >= 1; }
  bool shards_gradients() const { return shard >= 2; }
  bool shards_weights() const { return shard >= 3; }

  friend bool operator==(const Parallel&, const Parallel&) = default;
};

// "none", or "dp=N" with, after commas, "shard=0" to "shard=3" or "bucket=SIZE", "bucket=tensor",
// "bucket=all". Error{kUsage} naming `where` for anything else.
Parallel parse_parallel(const std::string& where, const std::string& text);
// The text that is parsed as this choice.
std::string name_of(const Parallel& choice);

}  // namespace tracestep
