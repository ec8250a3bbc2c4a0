// How a step is divided among ranks.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "base/enum_words.h"
#include "ops/rank_group.h"

namespace tracestep {

// What runs at the same time as collectives, which then have their own lane.
enum class Overlap : std::uint8_t {
  kBackward,  // The rest of backward; with tensor parallelism, the gradients of weights.
  kOff,       // Nothing: collectives run between the other nodes.
  kUpdates,   // While gradients are summed, also the updates of those that were summed before.
};
TRACESTEP_WORDS(Overlap, "on", "off", "updates");

// How ranks divide a step. Data parallel: replicas of the model have shares of the batch, and sum
// their gradients. Tensor parallel: a replica is several neighbouring ranks, which divide weights
// and products among them.
struct Parallel {
  static constexpr std::int64_t kEachTensor = 0, kAllTensors = -1, kByModel = -2;

  int ranks = 1;   // The ranks of the run.
  int tensor = 1;  // The ranks of a replica.
  // True: the ranks of a replica also divide the rows between products (sequence parallelism).
  bool divides_rows = false;
  // Of what each replica holds only its part (ZeRO stages): 0 nothing, 1 the optimizer's states, 2
  // gradients as well, 3 weights as well.
  int shard = 0;
  // Gradients are summed, and updated weights gathered, together as soon as they have this many
  // bytes. Also kEachTensor, kAllTensors, kByModel (resolve_bucket()).
  std::int64_t bucket_bytes = kByModel;
  // True: in mixed precision, gradients are summed in the low dtype in which products made them.
  bool low_sums = false;
  Overlap overlap = Overlap::kBackward;
  // With shard=3: how many layers ahead of their use weights are gathered.
  int prefetch = 1;

  bool is_on() const { return ranks > 1; }
  bool is_divided() const { return tensor > 1; }
  int replicas() const { return ranks / tensor; }
  // Return the groups of a rank: the ranks with the same part of the model in all replicas, and the
  // ranks of its own replica.
  RankGroup across_replicas() const { return {replicas(), tensor}; }
  RankGroup within_replica() const { return {tensor, 1}; }
  // True if collectives overlap other nodes. With groups of both kinds they must not, because
  // collectives of two groups at the same time could wait for each other forever.
  bool runs_beside() const { return overlap != Overlap::kOff && !is_divided(); }
  // True if a divided model's collectives run at the same time as nodes that do not wait for them.
  bool runs_beside_products() const {
    return overlap != Overlap::kOff && is_divided() && replicas() == 1;
  }
  bool sums_beside_updates() const { return overlap == Overlap::kUpdates && runs_beside(); }
  bool shards_optimizer() const { return shard >= 1; }
  bool shards_gradients() const { return shard >= 2; }
  bool shards_weights() const { return shard >= 3; }
  // True if each rank updates whole tensors of the model.
  bool updates_whole_tensors() const { return !shards_optimizer() && !is_divided(); }
  // Returns the bytes of a full batch of gradients; unlimited for kAllTensors, and for kByModel
  // until it is resolved.
  std::int64_t full_bytes() const {
    return bucket_bytes < 0 ? std::numeric_limits<std::int64_t>::max() : bucket_bytes;
  }

  friend bool operator==(const Parallel&, const Parallel&) = default;
};

// An example of a link between GPUs: its rate in one direction (NVLink 4: 18 links of 25 GB/s), and
// the time for starting a collective on it.
inline constexpr double kLinkBytesPerS = 18 * 25e9;
inline constexpr double kCallSeconds = 10e-6;

// Replaces kByModel by a size. With batches of b bytes, s bytes of gradients need s / b starts, and
// the last batch's b / bandwidth is not hidden by backward; the sum is least at b = sqrt(s *
// bandwidth * start). This is used if gradients are summed whole. If states or weights are divided,
// batches in progress add to the peak, so they are 25 MiB.
Parallel resolve_bucket(Parallel choice, std::int64_t gradient_bytes);

}  // namespace tracestep
