// An allocator without a pool: every allocation comes directly from the source, so that the
// source's memory checkers see the bounds of each block.
#include <map>

#include "runtime/accounted_allocator.h"

namespace tracestep {
namespace {

class PlainAllocator final : public AccountedAllocator {
 public:
  PlainAllocator(std::string device, MemorySource& source)
      : AccountedAllocator(std::move(device), source) {}
  ~PlainAllocator() override {
    for (const auto& [address, block] : blocks_) unmap(as_pointer(address), block.requested_bytes);
  }

  void* allocate(std::int64_t bytes, const AllocationTag& tag) override {
    if (bytes == 0) return nullptr;
    check_request(bytes, tag);
    void* data = map(bytes, tag);
    if (data == nullptr) out_of_memory(bytes, 0, tag);
    const LiveAllocation block{reinterpret_cast<std::uint64_t>(data), bytes, tag};
    blocks_[block.address] = block;
    count_alloc(block, bytes);
    return data;
  }

  void free(void* address) override {
    if (address == nullptr) return;
    const auto found = blocks_.find(reinterpret_cast<std::uint64_t>(address));
    TRACESTEP_CHECK(found != blocks_.end(), "{}: free of a block that is not live", device());
    count_free(found->second, found->second.requested_bytes);
    unmap(address, found->second.requested_bytes);
    blocks_.erase(found);
  }

  void trim() override {}

  std::vector<LiveAllocation> live() const override {
    std::vector<LiveAllocation> out;
    out.reserve(blocks_.size());
    for (const auto& [address, block] : blocks_) append_parts(out, block);
    return out;
  }

 private:
  static void* as_pointer(std::uint64_t address) {
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }

  std::map<std::uint64_t, LiveAllocation> blocks_;
};

}  // namespace

std::unique_ptr<Allocator> make_plain_allocator(std::string device, MemorySource& source) {
  return std::make_unique<PlainAllocator>(std::move(device), source);
}

}  // namespace tracestep
