// The base of all allocators, with the limit, the statistics, the recorded events and the
// out-of-memory error. Derived classes decide where blocks lie.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/allocator.h"

namespace tracestep {

// An allocator that counts and limits what it allocates; only the thread that issues steps uses it.
class AccountedAllocator : public Allocator {
 public:
  AccountedAllocator(const AccountedAllocator&) = delete;
  AccountedAllocator& operator=(const AccountedAllocator&) = delete;

  const AllocatorStats& stats() const override { return stats_; }
  void reset_peak() override;
  void set_limit(std::int64_t bytes) override;
  std::int64_t limit() const override { return limit_; }
  void set_recorder(Recorder* recorder) override { recorder_ = recorder; }
  Recorder* recorder() const override { return recorder_; }
  std::int64_t block_alignment() const override { return source_.block_alignment(); }

 protected:
  AccountedAllocator(std::string device, MemorySource& source)
      : device_(std::move(device)), source_(source) {}

  const std::string& device() const { return device_; }
  bool host_accessible() const { return source_.host_accessible(); }
  MemorySource& source() const { return source_; }

  // Throws OutOfMemory when `bytes` more would exceed the limit or the largest possible size.
  void check_request(std::int64_t bytes, const AllocationTag& tag);
  void count_alloc(const LiveAllocation& block, std::int64_t rounded_bytes);
  void count_free(const LiveAllocation& block, std::int64_t rounded_bytes);
  // Adds the block, or the parts that it consists of, to a list of live allocations.
  static void append_parts(std::vector<LiveAllocation>& list, const LiveAllocation& block);
  // Maps memory from the source or returns it, and counts it as reserved; nullptr when the source
  // has no more.
  void* map(std::int64_t bytes, const AllocationTag& tag);
  void unmap(void* address, std::int64_t bytes);
  // Throws OutOfMemory. `limit_bytes`: the limit to name in the error; 0: the source itself ran out
  // of memory.
  [[noreturn]] void out_of_memory(std::int64_t bytes, std::int64_t limit_bytes,
                                  const AllocationTag& tag);

 private:
  void record(MemoryAction action, const LiveAllocation& block, std::int64_t rounded_bytes);

  const std::string device_;
  MemorySource& source_;
  AllocatorStats stats_;
  std::int64_t limit_ = 0;
  Recorder* recorder_ = nullptr;
};

}  // namespace tracestep
