#include "lab/pytorch/caching_allocator.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20, kUnit = 512;
constexpr std::int64_t kSmallSize = kMiB, kSmallSegment = 2 * kMiB, kRoundLarge = 2 * kMiB;
constexpr std::int64_t kOwnSegmentFrom = 10 * kMiB;
constexpr std::int64_t kAddressSpace = std::int64_t{1} << 40;  // more than any card has

std::int64_t up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, std::int64_t limit_bytes,
                                   bool has_fraction)
    : settings_(settings), limit_bytes_(limit_bytes), has_fraction_(has_fraction) {}

std::int64_t CachingAllocator::rounded(std::int64_t bytes) const {
  if (bytes < kUnit) return kUnit;
  const auto size = static_cast<std::uint64_t>(bytes);
  const int interval = std::clamp(static_cast<int>(std::bit_width(size)) - 1 - 20, 0, 15);
  const std::int64_t divisions =
      settings_.roundup_power2_divisions[static_cast<std::size_t>(interval)];
  if (divisions <= 1 || bytes <= kUnit * divisions) return up(bytes, kUnit);
  if (std::has_single_bit(size)) return bytes;
  const auto floor = static_cast<std::int64_t>(std::bit_floor(size));
  const std::int64_t step = floor >> (std::bit_width(static_cast<std::uint64_t>(divisions)) - 1);
  return step == 0 ? 2 * floor : up(bytes, step);
}

std::int64_t CachingAllocator::segment_bytes(std::int64_t bytes) const {
  if (bytes <= kSmallSize) return kSmallSegment;
  return bytes < kOwnSegmentFrom ? settings_.large_segment_bytes : up(bytes, kRoundLarge);
}

CachingAllocator::BlockId CachingAllocator::make(Block block) {
  if (unused_ids_.empty()) {
    blocks_.push_back(block);
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = unused_ids_.back();
  unused_ids_.pop_back();
  blocks_[id] = block;
  return id;
}

CachingAllocator::Key CachingAllocator::free_key(BlockId id) const {
  const Block& b = blocks_[id];
  return {b.stream, b.bytes, b.address, id};
}

CachingAllocator::Key CachingAllocator::unmapped_key(BlockId id) const {
  const Block& b = blocks_[id];
  return {b.stream, b.address, 0, id};
}

void CachingAllocator::insert(BlockId id) {
  Block& b = blocks_[id];
  if (!b.is_mapped) {
    b.pool->unmapped.insert(unmapped_key(id));
    return;
  }
  b.born_at_search = b.pool->searches;
  b.pool->free.insert(free_key(id));
}

void CachingAllocator::erase(BlockId id) {
  Pool& pool = *blocks_[id].pool;
  if (blocks_[id].is_mapped) {
    pool.free.erase(free_key(id));
  } else {
    pool.unmapped.erase(unmapped_key(id));
  }
}

std::optional<CachingAllocator::BlockId> CachingAllocator::allocate(std::int64_t bytes,
                                                                    std::int64_t stream) {
  const std::int64_t size = rounded(bytes);
  Pool& pool = size <= kSmallSize ? small_ : large_;
  BlockId id = find(pool, stream, size);
  if (id == kNone) {
    if (has_fraction_ && settings_.gc_threshold > 0) collect();
    id = from_driver(pool, stream, size);
    if (id == kNone && give_back_enough(pool, stream, size)) id = from_driver(pool, stream, size);
    if (id == kNone) {
      give_back_all();
      ++statistics_.retries;
      id = from_driver(pool, stream, size);
    }
    if (id == kNone) return std::nullopt;
  }
  const std::int64_t rest = blocks_[id].bytes - size;
  const bool splits = pool.is_small || settings_.expandable_segments
                          ? rest >= kUnit
                          : size < settings_.max_split_bytes && rest > kSmallSize;
  if (splits) split(id, size);
  Block& block = blocks_[id];
  block.is_allocated = true;
  block.requested = bytes;
  Statistics& s = statistics_;
  s.requested_bytes += bytes;
  s.allocated_bytes += block.bytes;
  s.most_allocated_bytes = std::max(s.most_allocated_bytes, s.allocated_bytes);
  return id;
}

void CachingAllocator::free(BlockId id) {
  Block& block = blocks_[id];
  TRACESTEP_CHECK(block.is_allocated, "block {} is freed twice", id);
  block.is_allocated = false;
  statistics_.requested_bytes -= block.requested;
  statistics_.allocated_bytes -= block.bytes;
  join(id, block.before);
  join(id, blocks_[id].after);
  insert(id);
}

// Joins `from` to its neighbour `into`, which is in no pool's set, if `from` is free and as mapped.
void CachingAllocator::join(BlockId into, BlockId from) {
  if (from == kNone) return;
  Block &a = blocks_[into], &b = blocks_[from];
  if (b.is_allocated || a.is_mapped != b.is_mapped) return;
  erase(from);
  if (a.before == from) {
    a.address = b.address;
    a.before = b.before;
    if (a.before != kNone) blocks_[a.before].after = into;
  } else {
    a.after = b.after;
    if (a.after != kNone) blocks_[a.after].before = into;
  }
  a.bytes += b.bytes;
  b.pool = nullptr;
  unused_ids_.push_back(from);
}

// Cuts a block, which is in no pool's set, to its first `bytes`; the rest becomes a block in a set.
void CachingAllocator::split(BlockId id, std::int64_t bytes) {
  Block rest = blocks_[id];
  rest.address += bytes;
  rest.bytes -= bytes;
  rest.before = id;
  const BlockId after = make(rest);
  if (rest.after != kNone) blocks_[rest.after].before = after;
  blocks_[id].after = after;
  blocks_[id].bytes = bytes;
  insert(after);
}

CachingAllocator::BlockId CachingAllocator::find(Pool& pool, std::int64_t stream,
                                                 std::int64_t bytes) {
  ++pool.searches;
  auto at = pool.free.lower_bound({stream, bytes, 0, 0});
  if (at == pool.free.end() || std::get<0>(*at) != stream) return kNone;
  const auto grown = [&](BlockId id) {
    const BlockId after = blocks_[id].after;
    const bool grows = after != kNone && !blocks_[after].is_mapped;
    return blocks_[id].bytes + (grows ? blocks_[after].bytes : 0);
  };
  if (settings_.expandable_segments) {
    for (auto next = std::next(at); next != pool.free.end() && std::get<0>(*next) == stream &&
                                    grown(std::get<3>(*next)) < grown(std::get<3>(*at));
         ++next) {
      at = next;
    }
  }
  const BlockId id = std::get<3>(*at);
  const std::int64_t found = blocks_[id].bytes;
  if (bytes < settings_.max_split_bytes && found >= settings_.max_split_bytes) return kNone;
  if (bytes >= settings_.max_split_bytes && found >= bytes + settings_.non_split_rounding_bytes) {
    return kNone;
  }
  pool.free.erase(at);
  return id;
}

CachingAllocator::BlockId CachingAllocator::from_driver(Pool& pool, std::int64_t stream,
                                                        std::int64_t bytes) {
  const std::int64_t size = segment_bytes(bytes);
  Statistics& s = statistics_;
  if (settings_.expandable_segments) {
    const bool is_refused = has_fraction_ && s.reserved_bytes + size > limit_bytes_;
    return is_refused ? kNone : expand(pool, stream, bytes);
  }
  if (s.reserved_bytes + size > limit_bytes_) return kNone;
  s.reserved_bytes += size;
  s.most_reserved_bytes = std::max(s.most_reserved_bytes, s.reserved_bytes);
  last_address_ -= up(size, kSmallSegment);
  return make({.stream = stream,
               .bytes = size,
               .address = last_address_,
               .pool = &pool,
               .segment = last_address_});
}

CachingAllocator::BlockId CachingAllocator::find_expandable(Pool& pool, std::int64_t stream,
                                                            std::int64_t bytes) {
  const auto has_room = [&](BlockId id) {
    std::int64_t room = 0;
    for (; id != kNone && !blocks_[id].is_allocated && room < bytes; id = blocks_[id].after) {
      room += blocks_[id].bytes;
    }
    return room >= bytes;
  };
  for (auto at = pool.unmapped.lower_bound({stream, 0, 0, 0});
       at != pool.unmapped.end() && std::get<0>(*at) == stream; ++at) {
    const BlockId id = std::get<3>(*at), before = blocks_[id].before;
    const BlockId first = before != kNone && !blocks_[before].is_allocated ? before : id;
    if (has_room(first)) return first;
  }
  last_address_ -= kAddressSpace;
  const BlockId id = make({.stream = stream,
                           .bytes = kAddressSpace,
                           .address = last_address_,
                           .pool = &pool,
                           .segment = last_address_,
                           .is_mapped = false,
                           .is_expandable = true});
  insert(id);
  return id;
}

CachingAllocator::BlockId CachingAllocator::expand(Pool& pool, std::int64_t stream,
                                                   std::int64_t bytes) {
  BlockId id = find_expandable(pool, stream, bytes);
  if (!blocks_[id].is_mapped && !map(id, std::min(blocks_[id].bytes, bytes))) return kNone;
  while (blocks_[id].bytes < bytes) {
    const BlockId next = blocks_[id].after;
    if (!map(next, std::min(bytes - blocks_[id].bytes, blocks_[next].bytes))) return kNone;
    id = next;
  }
  pool.free.erase(free_key(id));
  return id;
}

// Maps pages at the beginning of an unmapped block, and makes it a free one.
bool CachingAllocator::map(BlockId id, std::int64_t bytes) {
  Pool& pool = *blocks_[id].pool;
  const std::int64_t page = pool.is_small ? kSmallSegment : settings_.large_segment_bytes;
  const std::int64_t mapped = up(bytes, page);
  Statistics& s = statistics_;
  if (!has_fraction_ && s.reserved_bytes + mapped > limit_bytes_) return false;
  pool.unmapped.erase(unmapped_key(id));
  if (mapped < blocks_[id].bytes) split(id, mapped);
  blocks_[id].is_mapped = true;
  join(id, blocks_[id].before);
  join(id, blocks_[id].after);
  insert(id);
  s.reserved_bytes += mapped;
  s.most_reserved_bytes = std::max(s.most_reserved_bytes, s.reserved_bytes);
  return true;
}

// Unmaps whole pages within a free block of an expandable segment.
void CachingAllocator::unmap(BlockId id) {
  const Block b = blocks_[id];
  const std::int64_t page = b.pool->is_small ? kSmallSegment : settings_.large_segment_bytes;
  const std::int64_t begin = b.segment + up(b.address - b.segment, page);
  const std::int64_t end = b.segment + (b.address + b.bytes - b.segment) / page * page;
  if (begin >= end) return;
  erase(id);
  BlockId middle = id;
  if (begin > b.address) {
    split(id, begin - b.address);
    middle = blocks_[id].after;
    erase(middle);
    insert(id);
  }
  if (end < b.address + b.bytes) split(middle, end - begin);
  blocks_[middle].is_mapped = false;
  join(middle, blocks_[middle].before);
  join(middle, blocks_[middle].after);
  insert(middle);
  statistics_.reserved_bytes -= end - begin;
}

void CachingAllocator::give_back(BlockId id) {
  erase(id);
  statistics_.reserved_bytes -= blocks_[id].bytes;
  blocks_[id].pool = nullptr;
  unused_ids_.push_back(id);
}

// Returns free segments to the driver if max_split_size is set: one that is large enough, or
// several of the largest.
bool CachingAllocator::give_back_enough(Pool& pool, std::int64_t stream, std::int64_t bytes) {
  if (settings_.max_split_bytes == kNoLimitBytes) return false;
  const std::int64_t wanted = std::max(bytes, settings_.max_split_bytes);
  auto at = pool.free.lower_bound({stream, wanted, 0, 0});
  if (at != pool.free.end() && std::get<0>(*at) == stream &&
      !blocks_[std::get<3>(*at)].is_expandable) {
    give_back(std::get<3>(*at));
    return true;
  }
  std::int64_t released = 0;
  std::vector<BlockId> chosen;
  while (at != pool.free.begin() && released < wanted) {
    --at;
    const auto& [of, size, address, id] = *at;
    if (of != stream || size < settings_.max_split_bytes) break;
    if (blocks_[id].is_expandable) continue;
    chosen.push_back(id);
    released += size;
  }
  std::ranges::for_each(chosen, [this](BlockId id) { give_back(id); });
  return released >= wanted;
}

void CachingAllocator::give_back_all() {
  for (Pool* pool : {&large_, &small_}) {
    std::vector<BlockId> all;
    for (const Key& key : pool->free) all.push_back(std::get<3>(key));
    for (BlockId id : all) {
      if (blocks_[id].is_expandable) {
        unmap(id);
      } else if (is_whole(blocks_[id])) {
        give_back(id);
      }
    }
  }
}

// Returns wholly free segments to the driver, those unused for longest, until gc_threshold is met.
void CachingAllocator::collect() {
  const auto threshold =
      static_cast<std::int64_t>(settings_.gc_threshold * static_cast<double>(limit_bytes_));
  const std::int64_t target = statistics_.reserved_bytes - threshold;
  const auto age = [&](BlockId id) { return large_.searches - blocks_[id].born_at_search; };
  std::vector<BlockId> whole;
  std::int64_t total = 0, reclaimed = 0;
  for (const Key& key : large_.free) {
    if (!is_whole(blocks_[std::get<3>(key)])) continue;
    whole.push_back(std::get<3>(key));
    total += age(whole.back());
  }
  for (bool has_freed = true; reclaimed < target && has_freed && !whole.empty();) {
    const double mean = static_cast<double>(total) / static_cast<double>(whole.size());
    has_freed = false;
    std::erase_if(whole, [&](BlockId id) {
      if (blocks_[id].is_expandable || static_cast<double>(age(id)) < mean) return false;
      has_freed = true;
      reclaimed += blocks_[id].bytes;
      total -= age(id);
      give_back(id);
      return true;
    });
  }
}

CachingAllocator::Unused CachingAllocator::unused() const {
  Unused out;
  for (const Pool* pool : {&small_, &large_}) {
    for (const auto& [stream, bytes, address, id] : pool->free) {
      out.bytes += bytes;
      ++out.pieces;
      out.largest_bytes = std::max(out.largest_bytes, bytes);
    }
  }
  return out;
}

std::vector<CachingAllocator::Piece> CachingAllocator::pieces() const {
  std::vector<Piece> out;
  for (const Block& b : blocks_) {
    if (b.pool == nullptr || !b.is_mapped) continue;
    out.push_back({.segment = b.segment,
                   .address = b.address,
                   .bytes = b.bytes,
                   .requested_bytes = b.is_allocated ? b.requested : 0,
                   .is_allocated = b.is_allocated,
                   .is_small = b.pool->is_small});
  }
  std::ranges::sort(out, {}, &Piece::address);
  return out;
}

}  // namespace tracestep
