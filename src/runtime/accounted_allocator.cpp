#include "runtime/accounted_allocator.h"

#include <algorithm>
#include <bit>

namespace tracestep {
namespace {

// The largest request: a larger one could overflow when rounded up; no machine has this much.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;

// Calls f(part, rounded bytes) for every part of the block, or for the block itself if it has none.
// The last part gets what rounding has added.
template <class F>
void for_parts(const LiveAllocation& block, std::int64_t rounded_bytes, const F& f) {
  if (block.tag.parts.empty()) [[likely]]
    return f(block, rounded_bytes);
  LiveAllocation part = block;
  part.tag.parts = {};
  for (const AllocationPart& p : block.tag.parts) {
    part.requested_bytes = p.bytes;
    part.tag.label = p.label;
    f(part, &p == &block.tag.parts.back() ? rounded_bytes : p.bytes);
    part.address += static_cast<std::uint64_t>(p.bytes);
    rounded_bytes -= p.bytes;
  }
}

}  // namespace

void AccountedAllocator::reset_peak() {
  stats_.peak_requested_bytes = stats_.requested_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

void AccountedAllocator::set_limit(std::int64_t bytes) {
  TRACESTEP_CHECK(bytes >= 0, "{}: a limit of {} bytes", device_, bytes);
  limit_ = bytes;
}

void AccountedAllocator::check_request(std::int64_t bytes, const AllocationTag& tag) {
  TRACESTEP_CHECK(bytes >= 0, "{}: {} bytes asked for", device_, bytes);
  // Subtracting cannot overflow, adding could.
  if (limit_ != 0 && bytes > limit_ - stats_.requested_bytes) out_of_memory(bytes, limit_, tag);
  if (bytes > kMaxBytes) out_of_memory(bytes, 0, tag);
}

void AccountedAllocator::count_alloc(const LiveAllocation& block, std::int64_t rounded_bytes) {
  ++stats_.allocation_count;
  stats_.allocated_bytes += rounded_bytes;
  if (recorder_ != nullptr) recorder_->count(Counter::kAllocations);
  for_parts(block, rounded_bytes, [&](const LiveAllocation& part, std::int64_t rounded) {
    stats_.requested_bytes += part.requested_bytes;
    if (recorder_ != nullptr) record(MemoryAction::kAlloc, part, rounded);
  });
  stats_.peak_requested_bytes = std::max(stats_.peak_requested_bytes, stats_.requested_bytes);
}

void AccountedAllocator::count_free(const LiveAllocation& block, std::int64_t rounded_bytes) {
  stats_.allocated_bytes -= rounded_bytes;
  for_parts(block, rounded_bytes, [&](const LiveAllocation& part, std::int64_t rounded) {
    stats_.requested_bytes -= part.requested_bytes;
    if (recorder_ != nullptr) record(MemoryAction::kFree, part, rounded);
  });
}

void AccountedAllocator::append_parts(std::vector<LiveAllocation>& list,
                                      const LiveAllocation& block) {
  for_parts(block, 0, [&](const LiveAllocation& part, std::int64_t) { list.push_back(part); });
}

void* AccountedAllocator::map(std::int64_t bytes, const AllocationTag& tag) {
  void* const address = source_.map(bytes);
  if (address == nullptr) return nullptr;
  ++stats_.map_count;
  stats_.reserved_bytes += bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  if (recorder_ != nullptr) {
    recorder_->count(Counter::kSegmentAllocations);
    record(MemoryAction::kSegmentAlloc, {std::bit_cast<std::uint64_t>(address), 0, tag}, bytes);
  }
  return address;
}

void AccountedAllocator::unmap(void* address, std::int64_t bytes) {
  stats_.reserved_bytes -= bytes;
  if (recorder_ != nullptr) {
    record(MemoryAction::kSegmentFree, {std::bit_cast<std::uint64_t>(address), 0, {}}, bytes);
  }
  source_.unmap(address, bytes);
}

void AccountedAllocator::out_of_memory(std::int64_t bytes, std::int64_t limit_bytes,
                                       const AllocationTag& tag) {
  if (recorder_ != nullptr) record(MemoryAction::kOom, {0, bytes, tag}, bytes);
  throw OutOfMemory(device_, bytes, limit_bytes, live(), {.is_on_host = source_.is_of_host()});
}

void AccountedAllocator::record(MemoryAction action, const LiveAllocation& block,
                                std::int64_t rounded_bytes) {
  if (!recorder_->records_memory()) return;  // without reading the clock
  recorder_->add(MemoryEvent{.action = action,
                             .category = block.tag.category,
                             .node = block.tag.node,
                             .address = block.address,
                             .requested_bytes = block.requested_bytes,
                             .rounded_bytes = rounded_bytes,
                             .time_ns = now_ns(),
                             .live_requested_bytes = stats_.requested_bytes});
}

}  // namespace tracestep
