// Memory of the CPU device: anonymous mappings; those of 2 MiB or more use pages of 2 MiB if the
// system has them.
#pragma once

#include <map>

#include "runtime/allocator.h"

namespace tracestep::cpu {

class HugePageSource : public MemorySource {
 public:
  void* map(std::int64_t bytes) override;
  void unmap(void* address, std::int64_t bytes) override;

  // Returns the bytes mapped here that were touched, so that physical memory backs them.
  std::int64_t resident_bytes() const;

 private:
  std::map<std::byte*, std::int64_t> mapped_;  // bytes by address
};

// Returns the bytes of anonymous physical memory that this process holds (heap, stacks, mappings;
// no code, no file), after the heap's free pages went back to the system; 0: not known.
std::int64_t process_resident_bytes();

}  // namespace tracestep::cpu
