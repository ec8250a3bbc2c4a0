#include "backends/cpu/memory_source.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

namespace tracestep::cpu {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

std::int64_t mapped_bytes(std::int64_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

void* HugePageSource::map(std::int64_t bytes) {
  // One page more than needed, then both ends are cut so that the rest begins on a huge page.
  const std::int64_t wanted = mapped_bytes(bytes), taken = wanted + kHugePage;
  void* raw = mmap(nullptr, static_cast<std::size_t>(taken), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(raw);
  const auto misplaced =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(raw) % kHugePage);
  const std::int64_t head = misplaced == 0 ? 0 : kHugePage - misplaced;
  if (head > 0) munmap(begin, static_cast<std::size_t>(head));
  munmap(begin + head + wanted, static_cast<std::size_t>(kHugePage - head));
  madvise(begin + head, static_cast<std::size_t>(wanted), MADV_HUGEPAGE);
  return begin + head;
}

void HugePageSource::unmap(void* address, std::int64_t bytes) {
  munmap(address, static_cast<std::size_t>(mapped_bytes(bytes)));
}

std::int64_t process_resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long total = 0, resident = 0;
  const int fields = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return fields == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace tracestep::cpu
