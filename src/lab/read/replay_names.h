// Finds the op and module of kernels in a replayed CUDA graph, which the recording does not name.
// The same program without the graph runs the same kernels in the same order, and there each has an
// op and a module.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/enum_words.h"
#include "lab/read/event_order.h"
#include "lab/read/names.h"

namespace tracestep {

enum class TracePass : std::uint8_t { kForward, kBackward, kOptimizer, kGraph };
TRACESTEP_WORDS(TracePass, "forward", "backward", "optimizer", "CUDA graph");

// The position of the host in the program at a moment.
struct HostPlace {
  std::uint32_t module = 0;
  std::uint32_t op = kNoNumber;
  TracePass pass = TracePass::kForward;
};

// The latest kernels that were launched one by one, in order, up to a limit.
class EagerKernels {
 public:
  void add(std::uint32_t name, const HostPlace& place);
  // For each kernel of a replay, the place of the matching eager kernel; nullptr: none matches.
  // Valid until the next call.
  std::vector<const HostPlace*> places_of(std::span<const std::uint32_t> replay);

  // The same kernels with the numbers of another recording's names; names that it lacks are added
  // to it.
  EagerKernels renumbered(const Names& names, const Names& paths, Names& to_names,
                          Names& to_paths) const;
  bool is_empty() const { return names_.empty(); }

 private:
  struct Match {
    // The places of a replay's kernels in order; kNoNumber: none.
    std::vector<std::uint32_t> places;
    std::size_t count = 0;
    std::size_t of = 0;  // How many eager kernels were known at the match.
  };
  std::pair<std::size_t, std::size_t> differing(std::span<const std::uint32_t> replay,
                                                std::size_t i, std::size_t j) const;
  Match match_from(std::span<const std::uint32_t> replay, std::size_t first,
                   std::size_t begin) const;
  Match match(std::span<const std::uint32_t> replay) const;

  std::vector<std::uint32_t> names_;
  std::vector<HostPlace> places_;
  std::unordered_map<std::uint64_t, Match> known_;  // Matches by a hash of the replay's kernels.
};

}  // namespace tracestep
