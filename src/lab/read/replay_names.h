// Kernels of a CUDA graph's replay say nothing of the op and the module that they belong to. The
// same program without the graph runs the same kernels in the same order, and there each says it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lab/read/event_order.h"
#include "lab/read/names.h"

namespace tracestep {

enum class TracePass : std::uint8_t { kForward, kBackward, kOptimizer, kGraph };
inline constexpr TracePass kAllTracePasses[] = {TracePass::kForward, TracePass::kBackward,
                                                TracePass::kOptimizer, TracePass::kGraph};
std::string_view name_of(TracePass pass);

// Where a moment of the host lies in the program.
struct HostPlace {
  std::uint32_t module = 0;
  std::uint32_t op = kNoNumber;
  TracePass pass = TracePass::kForward;
};

// The kernels that were launched one by one, in order: the last of them, as many as have room.
class EagerKernels {
 public:
  void add(std::uint32_t name, const HostPlace& place);
  // For each kernel of a replay the place of its like; nullptr: none was found. Valid until the
  // next call.
  std::vector<const HostPlace*> places_of(std::span<const std::uint32_t> replay);

  // Numbers these kernels as another recording does, which gets the names that it lacks.
  EagerKernels renumbered(const Names& names, const Names& paths, Names& to_names,
                          Names& to_paths) const;
  bool is_empty() const { return names_.empty(); }

 private:
  struct Match {
    std::vector<std::uint32_t> places;  // in this order; kNoNumber: none
    std::size_t count = 0;
    std::size_t of = 0;  // kernels that were known
  };
  std::pair<std::size_t, std::size_t> differing(std::span<const std::uint32_t> replay,
                                                std::size_t i, std::size_t j) const;
  Match match_from(std::span<const std::uint32_t> replay, std::size_t first,
                   std::size_t begin) const;
  Match match(std::span<const std::uint32_t> replay) const;

  std::vector<std::uint32_t> names_;
  std::vector<HostPlace> places_;
  std::unordered_map<std::uint64_t, Match> known_;  // of replays with the same kernels
};

}  // namespace tracestep
