// How a step is divided among ranks.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "ops/rank_group.h"

namespace tracestep {

// Work that collectives run beside, on a lane of their own.
enum class Overlap : std::uint8_t {
  kOff,       // nothing: they stand between the other nodes
  kBackward,  // what is computed meanwhile
  kUpdates,   // sums of gradients: the updates of those that were summed before
};
inline constexpr Overlap kAllOverlaps[] = {Overlap::kBackward, Overlap::kOff, Overlap::kUpdates};
std::string_view name_of(Overlap overlap);  // "on", "off", "updates"

// Data parallel: every replica of the model has its share of the batch, and gradients are summed
// over all replicas. Tensor parallel: a replica is several neighbouring ranks, which divide weights
// and products among them.
struct Parallel {
  static constexpr std::int64_t kEachTensor = 0, kAllTensors = -1, kByModel = -2;

  int ranks = 1;   // of the run
  int tensor = 1;  // of a replica
  // The ranks of a replica divide the rows between products too (sequence parallel).
  bool divides_rows = false;
  // Each replica holds only its part of: 0 nothing, 1 the optimizer's states, 2 gradients as well,
  // 3 weights as well.
  int shard = 0;
  // Gradients are summed together, and updated weights gathered together, when they are this many
  // bytes; or kEachTensor, kAllTensors, kByModel (resolve_bucket()).
  std::int64_t bucket_bytes = kByModel;
  // In mixed precision: whether gradients are summed in the low dtype, as the products made them.
  bool low_sums = false;
  Overlap overlap = Overlap::kBackward;
  // With weights in parts: how many layers ahead their weights are gathered.
  int prefetch = 1;

  bool is_on() const { return ranks > 1; }
  bool is_divided() const { return tensor > 1; }
  int replicas() const { return ranks / tensor; }
  // Groups of a rank: those with the same part of the model, and those of its own replica.
  RankGroup across_replicas() const { return {replicas(), tensor}; }
  RankGroup within_replica() const { return {tensor, 1}; }
  // Collectives of two groups at the same time could wait for each other for ever.
  bool runs_beside() const { return overlap != Overlap::kOff && !is_divided(); }
  bool sums_beside_updates() const { return overlap == Overlap::kUpdates && runs_beside(); }
  bool shards_optimizer() const { return shard >= 1; }
  bool shards_gradients() const { return shard >= 2; }
  bool shards_weights() const { return shard >= 3; }
  // True if each rank updates whole tensors of the model.
  bool updates_whole_tensors() const { return !shards_optimizer() && !is_divided(); }
  // The bytes of a full batch; unlimited for kAllTensors, and for kByModel until it is resolved.
  std::int64_t full_bytes() const {
    return bucket_bytes < 0 ? std::numeric_limits<std::int64_t>::max() : bucket_bytes;
  }

  friend bool operator==(const Parallel&, const Parallel&) = default;
};

// A link between GPUs, one direction (NVLink 4: 18 links of 25 GB/s), and what starting a
// collective on it takes, an example.
inline constexpr double kLinkBytesPerS = 18 * 25e9;
inline constexpr double kCallSeconds = 10e-6;

// The choice with a size for kByModel. Batches of b bytes of s bytes of gradients cost s / b
// starts, and the last one, b / bandwidth, stands behind backward: least at b = sqrt(s * bandwidth
// * start). That is taken where gradients are summed whole; parts of states or weights, of which
// batches under way add to the peak, take 25 MiB.
Parallel resolve_bucket(Parallel choice, std::int64_t gradient_bytes);

}  // namespace tracestep
