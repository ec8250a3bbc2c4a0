// The allocator of a device: exact tags on every allocation, statistics of what was requested,
// and a limit that makes any device behave like a smaller one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "record/recorder.h"

namespace tracestep {

// Where an allocator gets its memory: the system, a driver, or made-up addresses (null device).
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // At least 512-byte aligned; nullptr when there is no more.
  virtual void* map(std::int64_t bytes) = 0;
  virtual void unmap(void* address, std::int64_t bytes) = 0;
  // False: the addresses must never be read or written (null device, device memory).
  virtual bool host_accessible() const { return true; }
  // True for the host's memory, page-locked for a device or not.
  virtual bool is_of_host() const { return host_accessible(); }
  // The alignment in bytes that kernels may rely on; the guarded allocator gives exactly this.
  virtual std::int64_t block_alignment() const { return 64; }
  // True if set_bytes, copy_in and copy_out work; they wait for all work issued before.
  virtual bool host_copies() const { return false; }
  virtual void set_bytes(void* /*address*/, std::uint8_t /*value*/, std::int64_t /*bytes*/) {}
  virtual void copy_in(void* /*address*/, const void* /*host*/, std::int64_t /*bytes*/) {}
  virtual void copy_out(void* /*host*/, const void* /*address*/, std::int64_t /*bytes*/) {}
};

// One of several tensors that lie side by side in an allocation.
struct AllocationPart {
  std::int64_t bytes = 0;
  std::string_view label;  // as in AllocationTag
};

// States what an allocation is for; exact, from the program.
struct AllocationTag {
  Category category = Category::kTemporary;
  std::int32_t node = -1;  // the node that asked; -1: outside a step
  std::string_view label;  // leaf or output name; must outlive the allocation
  // Parts of the allocation, recorded and listed like allocations of their own; empty: it is not
  // divided. Must outlive the allocation.
  std::span<const AllocationPart> parts = {};
};

struct LiveAllocation {
  std::uint64_t address;
  std::int64_t requested_bytes;
  AllocationTag tag;
};

// What there was too little of.
struct Lack {
  bool is_on_host = false;   // the host's memory, else the device's own
  bool is_foreseen = false;  // all of it was counted first, and nothing was allocated
};

// Carries the live allocations, so that a report can say exactly what held the memory.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& device, std::int64_t requested_bytes, std::int64_t limit_bytes,
              std::vector<LiveAllocation> live, Lack lack);
  std::int64_t requested_bytes() const { return requested_bytes_; }
  std::int64_t limit_bytes() const { return limit_bytes_; }  // 0: the device itself was full
  const std::vector<LiveAllocation>& live() const { return live_; }
  const Lack& lack() const { return lack_; }

 private:
  std::int64_t requested_bytes_, limit_bytes_;
  std::vector<LiveAllocation> live_;
  Lack lack_;
};

struct AllocatorStats {
  std::int64_t requested_bytes = 0;       // live, as asked for
  std::int64_t peak_requested_bytes = 0;  // since reset_peak()
  std::int64_t allocated_bytes = 0;       // live, rounded up
  std::int64_t reserved_bytes = 0;        // taken from the source, guard zones included
  std::int64_t peak_reserved_bytes = 0;
  std::int64_t allocation_count = 0;  // calls so far
  std::int64_t map_count = 0;         // successful requests to the source so far
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // nullptr for 0 bytes. Throws OutOfMemory.
  virtual void* allocate(std::int64_t bytes, const AllocationTag& tag) = 0;
  virtual void free(void* address) = 0;
  virtual const AllocatorStats& stats() const = 0;
  virtual void reset_peak() = 0;
  // Gives cached memory back to the source.
  virtual void trim() = 0;
  // Limits the live requested bytes, which predictions count too; 0: no limit.
  virtual void set_limit(std::int64_t bytes) = 0;
  virtual std::int64_t limit() const = 0;
  // Records every event while set; nullptr: off.
  virtual void set_recorder(Recorder* recorder) = 0;
  virtual Recorder* recorder() const = 0;
  // In address order; parts instead of the allocation that they fill.
  virtual std::vector<LiveAllocation> live() const = 0;
  // True if stray writes are looked for; executors then check their plans too.
  virtual bool is_guarded() const { return false; }
  // The guaranteed alignment of every block, in bytes.
  virtual std::int64_t block_alignment() const = 0;
};

// Splits and coalesces blocks of large segments, best fit; O(log n), about 50 ns a call.
std::unique_ptr<Allocator> make_caching_allocator(std::string device, MemorySource& source);

// Finds stray writes and reads: no reuse, patterned zones before and after every block (checked
// when it is freed), new blocks filled with NaN, sanitizer poisoning of freed blocks. In device
// memory every call copies and waits. Throws Error{kUsage} when the source has no real memory.
std::unique_ptr<Allocator> make_guarded_allocator(std::string device, MemorySource& source);

// Maps every allocation from the source by itself: slow, but memory checkers see each block.
std::unique_ptr<Allocator> make_plain_allocator(std::string device, MemorySource& source);

}  // namespace tracestep
