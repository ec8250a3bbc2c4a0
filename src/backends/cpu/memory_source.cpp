#include "backends/cpu/memory_source.h"

#include "base/integers.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace tracestep::cpu {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

// True for a request that gets ordinary pages, of less than a huge one: the guarded allocator maps
// each block by itself, and the system would clear 2 MiB for every one.
bool is_small(std::int64_t bytes) {
  return bytes < kHugePage;
}

std::int64_t mapped_bytes(std::int64_t bytes) {
  return round_up(bytes, is_small(bytes) ? sysconf(_SC_PAGESIZE) : kHugePage);
}

std::byte* map_pages(std::int64_t bytes) {
  void* raw = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return raw == MAP_FAILED ? nullptr : static_cast<std::byte*>(raw);
}

// Maps memory that begins with a huge page: maps one page more than needed, and unmaps the ends.
std::byte* map_huge_pages(std::int64_t wanted) {
  std::byte* const begin = map_pages(wanted + kHugePage);
  if (begin == nullptr) return nullptr;
  const auto misplaced =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % kHugePage);
  const std::int64_t head = misplaced == 0 ? 0 : kHugePage - misplaced;
  if (head > 0) munmap(begin, static_cast<std::size_t>(head));
  munmap(begin + head + wanted, static_cast<std::size_t>(kHugePage - head));
  madvise(begin + head, static_cast<std::size_t>(wanted), MADV_HUGEPAGE);
  return begin + head;
}

}  // namespace

void* HugePageSource::map(std::int64_t bytes) {
  const std::int64_t wanted = mapped_bytes(bytes);
  std::byte* const begin = is_small(bytes) ? map_pages(wanted) : map_huge_pages(wanted);
  if (begin != nullptr) mapped_.emplace(begin, wanted);
  return begin;
}

void HugePageSource::unmap(void* address, std::int64_t bytes) {
  munmap(address, static_cast<std::size_t>(mapped_bytes(bytes)));
  mapped_.erase(static_cast<std::byte*>(address));
}

std::int64_t HugePageSource::resident_bytes() const {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> is_there;
  std::int64_t pages = 0;
  for (const auto& [begin, bytes] : mapped_) {
    is_there.resize(static_cast<std::size_t>(bytes / page));
    if (mincore(begin, static_cast<std::size_t>(bytes), is_there.data()) != 0) continue;
    pages += std::ranges::count_if(is_there, [](unsigned char p) { return (p & 1u) != 0; });
  }
  return pages * page;
}

std::int64_t process_resident_bytes() {
  malloc_trim(0);
  // The counters of statm lag behind by some pages per thread; the rollup walks the page tables.
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "Anonymous: %lld kB", &kib) == 1) return kib * 1024;
  }
  return 0;
}

}  // namespace tracestep::cpu
