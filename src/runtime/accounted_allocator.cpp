#include "runtime/accounted_allocator.h"

#include <algorithm>
#include <bit>

namespace tracestep {
namespace {

// Larger requests could overflow when rounded up; no machine has this much.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;

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
  stats_.requested_bytes += block.requested_bytes;
  stats_.peak_requested_bytes = std::max(stats_.peak_requested_bytes, stats_.requested_bytes);
  if (recorder_ == nullptr) return;
  recorder_->count(Counter::kAllocations);
  record(MemoryAction::kAlloc, block, rounded_bytes);
}

void AccountedAllocator::count_free(const LiveAllocation& block, std::int64_t rounded_bytes) {
  stats_.allocated_bytes -= rounded_bytes;
  stats_.requested_bytes -= block.requested_bytes;
  if (recorder_ != nullptr) record(MemoryAction::kFree, block, rounded_bytes);
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
  throw OutOfMemory(device_, bytes, limit_bytes, live());
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
