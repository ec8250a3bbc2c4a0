#include "lab/pytorch/replay.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tracestep {
namespace {

constexpr std::size_t kMostMoments = 400;
constexpr std::int64_t kLibraries = std::int64_t{770} << 20;  // measured on an H200
constexpr std::int64_t kPrecision = std::int64_t{2} << 20;

// Replays a list of requests, event by event, in a simulated allocator.
class Run {
 public:
  Run(const AllocationList& list, const AllocatorSettings& settings, const PytorchCard& card,
      std::int64_t limit_bytes, bool has_fraction)
      : list_(list),
        card_(card),
        allocator_(settings, limit_bytes, has_fraction),
        ids_(list.blocks, kDead),
        births_(list.blocks) {}

  // Replays event `at` of the list. False: memory ran out, and no block was allocated.
  bool step(std::size_t at) {
    const AllocationEvent& event = list_.events[at];
    if (event.bytes == 0) {
      allocator_.free(ids_[event.block]);
      ids_[event.block] = kDead;
      return true;
    }
    const auto id = allocator_.allocate(bytes_of(event), event.stream);
    if (!id) return false;
    ids_[event.block] = *id;
    births_[event.block] = at;
    return true;
  }
  std::int64_t bytes_of(const AllocationEvent& event) const {
    return event.bytes == kLibraryWorkspace ? card_.workspace_bytes : event.bytes;
  }
  const CachingAllocator& allocator() const { return allocator_; }
  std::vector<PytorchHolder> holders() const;

 private:
  static constexpr CachingAllocator::BlockId kDead = ~CachingAllocator::BlockId{0};
  const AllocationList& list_;
  const PytorchCard& card_;
  CachingAllocator allocator_;
  std::vector<CachingAllocator::BlockId> ids_;  // by block of the list
  std::vector<std::size_t> births_;
};

std::vector<PytorchHolder> Run::holders() const {
  std::map<std::tuple<std::uint32_t, std::uint32_t, PytorchPart>, PytorchHolder> found;
  for (std::size_t block = 0; block < ids_.size(); ++block) {
    if (ids_[block] == kDead) continue;
    const AllocationEvent& e = list_.events[births_[block]];
    PytorchHolder& holder = found[{e.module, e.site, e.part}];
    holder.module = e.module;
    holder.site = e.site;
    holder.part = e.part;
    holder.bytes += allocator_.rounded(bytes_of(e));
    ++holder.blocks;
  }
  std::vector<PytorchHolder> out;
  for (const auto& [key, holder] : found) out.push_back(holder);
  std::ranges::stable_sort(out, std::greater(), &PytorchHolder::bytes);
  return out;
}

bool runs_in(const AllocationList& list, const AllocatorSettings& settings, const PytorchCard& card,
             std::int64_t limit_bytes) {
  Run run(list, settings, card, limit_bytes, false);
  for (std::size_t at = 0; at < list.events.size(); ++at) {
    if (!run.step(at)) return false;
  }
  return true;
}

// Thins moments out to a few hundred: of each run of neighbours it keeps the one with most bytes.
void thin(std::vector<PytorchMoment>& moments) {
  const std::size_t stride = moments.size() / kMostMoments + 1;
  std::vector<PytorchMoment> out;
  for (std::size_t i = 0; i < moments.size(); i += stride) {
    const auto begin = moments.begin() + static_cast<std::ptrdiff_t>(i);
    const auto count = std::min(stride, moments.size() - i);
    out.push_back(*std::max_element(
        begin, begin + static_cast<std::ptrdiff_t>(count),
        [](const auto& a, const auto& b) { return a.allocated_bytes < b.allocated_bytes; }));
  }
  moments = std::move(out);
}

}  // namespace

std::int64_t outside_bytes_of(const AllocationList& list) {
  const bool has_cudnn = std::ranges::any_of(list.names, [&](const std::string& name) {
    return name.find("cudnn") != name.npos || name.starts_with("convolution") ||
           (!list.is_recorded && name.starts_with("flash_attention"));
  });
  return kLibraries * (has_cudnn ? 2 : 1);
}

PytorchReplay replay(const AllocationList& list, const AllocatorSettings& settings,
                     const PytorchCard& card, bool has_fraction) {
  PytorchReplay out;
  Run run(list, settings, card, card.limit_bytes(), has_fraction);
  std::int64_t most = 0, step = 0;
  PytorchPart part = PytorchPart::kSetup;
  for (std::size_t at = 0; at < list.events.size(); ++at) {
    while (step < std::ssize(list.steps) && list.steps[static_cast<std::size_t>(step)] <= at)
      ++step;
    const AllocationEvent& event = list.events[at];
    if (event.bytes != 0) part = event.part;
    if (event.bytes == kLibraryWorkspace) ++out.workspaces;
    if (!run.step(at)) {
      out.out_of_memory = {.event = at,
                           .asked_bytes = run.bytes_of(event),
                           .step = step,
                           .then = run.allocator().statistics(),
                           .unused = run.allocator().unused()};
      break;
    }
    const CachingAllocator::Statistics& now = run.allocator().statistics();
    out.moments.push_back({.event = static_cast<std::int64_t>(at),
                           .step = step,
                           .part = part,
                           .allocated_bytes = now.allocated_bytes,
                           .reserved_bytes = now.reserved_bytes});
    if (now.allocated_bytes <= most) continue;
    most = now.allocated_bytes;
    out.peak_event = at;
    out.reserved_at_peak_bytes = now.reserved_bytes;
  }
  out.statistics = run.allocator().statistics();
  Run to_peak(list, settings, card, card.limit_bytes(), has_fraction);
  for (std::size_t at = 0; at <= out.peak_event && at < list.events.size(); ++at) to_peak.step(at);
  out.holders = to_peak.holders();
  out.unused_at_peak = to_peak.allocator().unused();
  thin(out.moments);
  return out;
}

std::int64_t least_reserved_bytes(const AllocationList& list, const AllocatorSettings& settings,
                                  const PytorchCard& card) {
  PytorchCard any = card;
  any.usable_bytes = 0;
  const CachingAllocator::Statistics free = replay(list, settings, any).statistics;
  std::int64_t low = free.most_allocated_bytes - kPrecision, high = free.most_reserved_bytes;
  while (high - low > kPrecision) {
    const std::int64_t middle = low + (high - low) / 2;
    (runs_in(list, settings, card, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace tracestep
