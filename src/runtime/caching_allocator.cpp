// The caching allocator: segments from the source, cut into blocks that are split on allocation,
// merged with free neighbours on free, and reused by best fit. The memory itself is never read or
// written, so device memory and made-up addresses work as well. Blocks of one size are taken by
// age of segment, not by address: the same calls give the same places in every process.
#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/integers.h"
#include "runtime/accounted_allocator.h"
#include "runtime/sanitizer.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kAlignment = 512;  // what the sources promise
// The largest small block; small blocks have segments of their own and keep no large one in use.
constexpr std::int64_t kMaxSmallBytes = kMiB;
constexpr std::int64_t kGranuleBytes = 2 * kMiB;  // a huge page
constexpr std::int64_t kLargeSegmentBytes = 20 * kMiB;

struct Block;

struct FreeBlock {
  std::int64_t bytes;
  std::int64_t segment;
  std::uint64_t address;
  Block* block;

  bool operator<(const FreeBlock& other) const {
    return std::tie(bytes, segment, address) < std::tie(other.bytes, other.segment, other.address);
  }
};

using FreeSet = std::set<FreeBlock>;
using LiveMap = std::unordered_map<std::uint64_t, Block*>;

// A piece of a segment. Neighbours are adjacent blocks of the same segment; a free block without
// neighbours is a whole free segment. A block in one table keeps its map node of the other table,
// so that a steady state needs no heap allocations.
struct Block {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::int64_t requested_bytes = 0;
  std::int64_t segment = 0;  // index of its segment in order of mapping
  Block* previous = nullptr;
  Block* next = nullptr;  // of a spare block: the next spare one
  AllocationTag tag;
  bool small = false;
  bool live = false;
  FreeSet::iterator free_position;
  FreeSet::node_type free_node;
  LiveMap::node_type live_node;
};

class CachingAllocator final : public AccountedAllocator {
 public:
  CachingAllocator(std::string device, MemorySource& source)
      : AccountedAllocator(std::move(device), source) {}
  ~CachingAllocator() override;

  void* allocate(std::int64_t bytes, const AllocationTag& tag) override;
  void free(void* address) override;
  void trim() override;
  std::vector<LiveAllocation> live() const override;

 private:
  Block* take_best_fit(bool small, std::int64_t bytes);
  Block* map_segment(bool small, std::int64_t bytes, const AllocationTag& tag);
  void split(Block& block, std::int64_t bytes);
  void merge_with_next(Block& block);
  Block* new_block();
  void retire(Block* block);
  void insert_free(Block* block);
  void erase_free(Block* block);
  void insert_live(Block* block);
  void unmap_segment(std::uint64_t address, std::int64_t bytes);

  std::deque<Block> blocks_;
  Block* spare_ = nullptr;
  FreeSet free_[2];  // large, small
  LiveMap live_;
  std::map<std::uint64_t, std::int64_t> segments_;  // address, bytes
  std::int64_t mapped_segments_ = 0;
};

CachingAllocator::~CachingAllocator() {
  set_recorder(nullptr);  // the recorder may be gone already
  for (const auto& [address, bytes] : segments_) unmap_segment(address, bytes);
}

void* CachingAllocator::allocate(std::int64_t bytes, const AllocationTag& tag) {
  if (bytes == 0) return nullptr;
  check_request(bytes, tag);
  const std::int64_t rounded = round_up(bytes, kAlignment);
  const bool small = rounded <= kMaxSmallBytes;
  Block* block = take_best_fit(small, rounded);
  if (block == nullptr) block = map_segment(small, rounded, tag);
  if (block == nullptr) out_of_memory(bytes, 0, tag);
  if (block->bytes > rounded) split(*block, rounded);
  block->live = true;
  block->requested_bytes = bytes;
  block->tag = tag;
  insert_live(block);
  void* const address = std::bit_cast<void*>(block->address);
  if (host_accessible()) allow_access(address, bytes);
  count_alloc({block->address, bytes, tag}, rounded);
  return address;
}

void CachingAllocator::free(void* address) {
  if (address == nullptr) return;
  const auto found = live_.find(std::bit_cast<std::uint64_t>(address));
  TRACESTEP_CHECK(found != live_.end(), "{}: {} was freed twice or never allocated", device(),
                  address);
  Block* block = found->second;
  block->live_node = live_.extract(found);
  if (host_accessible()) forbid_access(address, block->bytes);
  count_free({block->address, block->requested_bytes, block->tag}, block->bytes);
  block->live = false;
  if (block->next != nullptr && !block->next->live) {
    erase_free(block->next);
    merge_with_next(*block);
  }
  if (block->previous != nullptr && !block->previous->live) {
    block = block->previous;
    erase_free(block);
    merge_with_next(*block);
  }
  insert_free(block);
}

void CachingAllocator::trim() {
  for (FreeSet& blocks : free_) {
    for (auto it = blocks.begin(); it != blocks.end();) {
      Block* const block = it->block;
      if (block->previous != nullptr || block->next != nullptr) {
        ++it;
        continue;
      }
      ++it;
      erase_free(block);
      segments_.erase(block->address);
      unmap_segment(block->address, block->bytes);
      retire(block);
    }
  }
}

std::vector<LiveAllocation> CachingAllocator::live() const {
  std::vector<LiveAllocation> blocks;
  blocks.reserve(live_.size());
  for (const auto& [address, block] : live_) {
    append_parts(blocks, {address, block->requested_bytes, block->tag});
  }
  std::ranges::sort(blocks, {}, &LiveAllocation::address);
  return blocks;
}

Block* CachingAllocator::take_best_fit(bool small, std::int64_t bytes) {
  FreeSet& blocks = free_[small];
  const auto found = blocks.lower_bound(FreeBlock{bytes, 0, 0, nullptr});
  if (found == blocks.end()) return nullptr;
  Block* const block = found->block;
  erase_free(block);
  return block;
}

Block* CachingAllocator::map_segment(bool small, std::int64_t bytes, const AllocationTag& tag) {
  const std::int64_t least = round_up(bytes, kGranuleBytes);
  std::int64_t wanted = small ? least : std::max(least, kLargeSegmentBytes);
  void* address = map(wanted, tag);
  if (address == nullptr) {  // free unused segments, then ask for no more than needed
    trim();
    wanted = least;
    address = map(wanted, tag);
  }
  if (address == nullptr) return nullptr;
  Block* const block = new_block();
  block->address = std::bit_cast<std::uint64_t>(address);
  block->bytes = wanted;
  block->segment = mapped_segments_++;
  block->small = small;
  segments_.emplace(block->address, wanted);
  if (host_accessible()) forbid_access(address, wanted);
  return block;
}

// Shortens `block` to `bytes`; what follows becomes a free block.
void CachingAllocator::split(Block& block, std::int64_t bytes) {
  Block* const rest = new_block();
  rest->address = block.address + static_cast<std::uint64_t>(bytes);
  rest->bytes = block.bytes - bytes;
  rest->segment = block.segment;
  rest->small = block.small;
  rest->previous = &block;
  rest->next = block.next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block.next = rest;
  block.bytes = bytes;
  insert_free(rest);
}

// Joins the next block to this one. Both must be free and in no free set.
void CachingAllocator::merge_with_next(Block& block) {
  Block* const gone = block.next;
  block.bytes += gone->bytes;
  block.next = gone->next;
  if (block.next != nullptr) block.next->previous = &block;
  retire(gone);
}

Block* CachingAllocator::new_block() {
  if (spare_ == nullptr) return &blocks_.emplace_back();
  Block* const block = spare_;
  spare_ = block->next;
  block->previous = block->next = nullptr;
  return block;
}

void CachingAllocator::retire(Block* block) {
  block->next = spare_;
  spare_ = block;
}

void CachingAllocator::insert_free(Block* block) {
  FreeSet& blocks = free_[block->small];
  const FreeBlock key{block->bytes, block->segment, block->address, block};
  if (block->free_node.empty()) {
    block->free_position = blocks.insert(key).first;
  } else {
    block->free_node.value() = key;
    block->free_position = blocks.insert(std::move(block->free_node)).position;
  }
}

void CachingAllocator::erase_free(Block* block) {
  block->free_node = free_[block->small].extract(block->free_position);
}

void CachingAllocator::insert_live(Block* block) {
  if (block->live_node.empty()) {
    live_.emplace(block->address, block);
  } else {
    block->live_node.key() = block->address;
    block->live_node.mapped() = block;
    live_.insert(std::move(block->live_node));
  }
}

void CachingAllocator::unmap_segment(std::uint64_t address, std::int64_t bytes) {
  void* const begin = std::bit_cast<void*>(address);
  if (host_accessible()) allow_access(begin, bytes);
  unmap(begin, bytes);
}

}  // namespace

std::unique_ptr<Allocator> make_caching_allocator(std::string device, MemorySource& source) {
  return std::make_unique<CachingAllocator>(std::move(device), source);
}

}  // namespace tracestep
