#include "support/allocation_peak.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// All tests of a program allocate by the operators below: what nobody asked for is not counted.
std::atomic<bool> counts;
std::atomic<std::ptrdiff_t> live_bytes, peak_bytes;
std::atomic<std::int64_t> allocations, frees;

void count_while(const std::function<void()>& run) {
  counts = true;
  run();
  counts = false;
}

void* counted(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  if (!counts) return block;
  ++allocations;
  const auto size = static_cast<std::ptrdiff_t>(malloc_usable_size(block));
  const std::ptrdiff_t live = live_bytes += size;
  std::ptrdiff_t seen = peak_bytes;
  while (live > seen && !peak_bytes.compare_exchange_weak(seen, live)) {
  }
  return block;
}

void* allocate_aligned(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, std::max<std::size_t>((size + unit - 1) / unit, 1) * unit);
}

void release(void* block) {
  if (block == nullptr) return;
  if (counts) {
    ++frees;
    live_bytes -= static_cast<std::ptrdiff_t>(malloc_usable_size(block));
  }
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(std::malloc(std::max<std::size_t>(size, 1)));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* const block = std::malloc(std::max<std::size_t>(size, 1));
  return block == nullptr ? nullptr : counted(block);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(allocate_aligned(size, alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  void* const block = allocate_aligned(size, alignment);
  return block == nullptr ? nullptr : counted(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  release(block);
}
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  release(block);
}
void operator delete(void* block, const std::nothrow_t&) noexcept {
  release(block);
}
void operator delete(void* block) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t) noexcept {
  release(block);
}

namespace tracestep::testing {

std::size_t allocation_peak_of(const std::function<void()>& run) {
  const std::ptrdiff_t before = live_bytes;
  peak_bytes = before;
  count_while(run);
  return static_cast<std::size_t>(peak_bytes - before);
}

HeapCalls heap_calls_of(const std::function<void()>& run) {
  const HeapCalls before{allocations, frees};
  count_while(run);
  return {allocations - before.allocations, frees - before.frees};
}

}  // namespace tracestep::testing
