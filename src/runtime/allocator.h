// The allocator of a device: exact tags on every allocation, statistics of requested bytes, and a
// limit that makes a device behave like a smaller one.
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
  // Returns memory aligned to at least 512 bytes; nullptr when there is no more.
  virtual void* map(std::int64_t bytes) = 0;
  virtual void unmap(void* address, std::int64_t bytes) = 0;
  // True unless the addresses must never be read or written (null device, device memory).
  virtual bool host_accessible() const { return true; }
  // True for memory of the host, whether page-locked for a device or not.
  virtual bool is_of_host() const { return host_accessible(); }
  // Returns the alignment in bytes that kernels may rely on; guarded allocators align to no more.
  virtual std::int64_t block_alignment() const { return 64; }
  // True if set_bytes, copy_in and copy_out work; they wait for all work issued before.
  virtual bool host_copies() const { return false; }
  virtual void set_bytes(void* /*address*/, std::uint8_t /*value*/, std::int64_t /*bytes*/) {}
  virtual void copy_in(void* /*address*/, const void* /*host*/, std::int64_t /*bytes*/) {}
  virtual void copy_out(void* /*host*/, const void* /*address*/, std::int64_t /*bytes*/) {}
};

// One of several tensors that lie side by side in one allocation.
struct AllocationPart {
  std::int64_t bytes = 0;
  std::string_view label;  // The label as in AllocationTag.
};

// States what an allocation is for; exact, from the program.
struct AllocationTag {
  Category category = Category::kTemporary;
  std::int32_t node = -1;  // The node that requested it; -1: it was requested outside a step.
  std::string_view label;  // The name of the leaf or output; the text must outlive the allocation.
  // Parts of the allocation, recorded and listed like allocations of their own; empty: it is not
  // divided. Must outlive the allocation.
  std::span<const AllocationPart> parts = {};
};

struct LiveAllocation {
  std::uint64_t address;
  std::int64_t requested_bytes;
  AllocationTag tag;
};

// The kind of memory that was lacking.
struct Lack {
  bool is_on_host = false;  // True: the host's memory; false: the device's own.
  // True: the need was computed before the run, and nothing was allocated.
  bool is_foreseen = false;
};

// The error of a failed request. It carries the live allocations, so that a report can say what
// held the memory.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& device, std::int64_t requested_bytes, std::int64_t limit_bytes,
              std::vector<LiveAllocation> live, Lack lack);
  std::int64_t requested_bytes() const { return requested_bytes_; }
  // Returns the limit that was exceeded; 0: the device itself was full.
  std::int64_t limit_bytes() const { return limit_bytes_; }
  const std::vector<LiveAllocation>& live() const { return live_; }
  const Lack& lack() const { return lack_; }

 private:
  std::int64_t requested_bytes_, limit_bytes_;
  std::vector<LiveAllocation> live_;
  Lack lack_;
};

struct AllocatorStats {
  std::int64_t requested_bytes = 0;       // Bytes of live blocks as requested.
  std::int64_t peak_requested_bytes = 0;  // The peak of requested_bytes since reset_peak().
  std::int64_t allocated_bytes = 0;       // Bytes of live blocks, rounded up.
  std::int64_t reserved_bytes = 0;        // Bytes taken from the source, including guard zones.
  std::int64_t peak_reserved_bytes = 0;
  std::int64_t allocation_count = 0;  // calls so far
  std::int64_t map_count = 0;         // The number of successful requests to the source.
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // Allocates memory; nullptr for 0 bytes. Throws OutOfMemory.
  virtual void* allocate(std::int64_t bytes, const AllocationTag& tag) = 0;
  virtual void free(void* address) = 0;
  virtual const AllocatorStats& stats() const = 0;
  virtual void reset_peak() = 0;
  // Gives cached memory back to the source.
  virtual void trim() = 0;
  // Limits the live requested bytes, which are also what predictions count; 0: no limit.
  virtual void set_limit(std::int64_t bytes) = 0;
  virtual std::int64_t limit() const = 0;
  // Records every event in `recorder` until another one is set; nullptr: off.
  virtual void set_recorder(Recorder* recorder) = 0;
  virtual Recorder* recorder() const = 0;
  // Returns the live allocations in the order of addresses; an allocation with parts is listed by
  // its parts.
  virtual std::vector<LiveAllocation> live() const = 0;
  // True if the allocator looks for stray writes; executors then also check their plans.
  virtual bool is_guarded() const { return false; }
  // Returns the guaranteed alignment of every block, in bytes.
  virtual std::int64_t block_alignment() const = 0;
};

// Returns an allocator that splits and joins blocks of large segments, best fit; O(log n), about 50
// ns a call.
std::unique_ptr<Allocator> make_caching_allocator(std::string device, MemorySource& source);

// Returns an allocator that finds stray writes and reads: memory is not reused, each block has
// patterned zones around it (checked when it is freed), new blocks are filled with NaN, and freed
// blocks are poisoned for sanitizers. In device memory every call copies and waits. Throws
// Error{kUsage} if the source has no real memory.
std::unique_ptr<Allocator> make_guarded_allocator(std::string device, MemorySource& source);

// Returns an allocator that maps every allocation separately from the source: slow, but memory
// checkers see each block.
std::unique_ptr<Allocator> make_plain_allocator(std::string device, MemorySource& source);

}  // namespace tracestep
