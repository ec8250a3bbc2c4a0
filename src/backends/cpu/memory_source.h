// Memory of the CPU device: anonymous mappings on 2 MiB pages where the system has them.
#pragma once

#include "runtime/allocator.h"

namespace tracestep::cpu {

class HugePageSource : public MemorySource {
 public:
  void* map(std::int64_t bytes) override;
  void unmap(void* address, std::int64_t bytes) override;
};

// Bytes of physical memory this process holds; 0: not known.
std::int64_t process_resident_bytes();

}  // namespace tracestep::cpu
