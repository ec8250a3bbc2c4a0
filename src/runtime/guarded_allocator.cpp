#include "runtime/guarded_allocator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/integers.h"
#include "base/log.h"
#include "runtime/sanitizer.h"

namespace tracestep {
namespace {

// Returns the bytes of a guard zone: more than any SIMD vector has, and an odd multiple of the
// alignment, so that kernels that rely on a larger alignment fail.
constexpr std::int64_t zone_bytes(std::int64_t alignment) {
  return (alignment < 256 ? 5 : 3) * alignment;
}
constexpr std::int64_t kMappingUnit = 512;
constexpr std::int64_t kQuarantineBytes = std::int64_t{64} << 20;
// The most bytes in quarantine in device memory, which is checked through copies, and so slowly.
constexpr std::int64_t kCopiedQuarantineBytes = std::int64_t{4} << 20;

// The patterns of zones, new and freed memory: two bytes each. The last two are NaN in float types.
constexpr std::uint16_t kZonePattern = 0xA55A;
constexpr std::uint16_t kUninitialised = 0xFFFF;
constexpr std::uint16_t kFreed = 0xFFFD;

std::byte byte_of(std::uint16_t pattern, std::int64_t index) {
  return static_cast<std::byte>(index % 2 == 0 ? pattern & 0xFF : pattern >> 8);
}

void fill_host(std::byte* begin, std::int64_t bytes, std::uint16_t pattern) {
  const std::byte both[2] = {byte_of(pattern, 0), byte_of(pattern, 1)};
  for (std::int64_t i = 0; i + 1 < bytes; i += 2) std::memcpy(begin + i, both, 2);
  if (bytes % 2 != 0) begin[bytes - 1] = both[0];
}

// True if all bytes have the pattern, as fill_host() writes it.
bool has_pattern(const std::byte* begin, std::int64_t bytes, std::uint16_t pattern) {
  for (std::int64_t i = 0; i < std::min<std::int64_t>(bytes, 2); ++i) {
    if (begin[i] != byte_of(pattern, i)) return false;
  }
  // A block that equals itself two bytes on repeats its first two.
  return bytes <= 2 || std::memcmp(begin, begin + 2, static_cast<std::size_t>(bytes - 2)) == 0;
}

}  // namespace

GuardedAllocator::GuardedAllocator(std::string device, MemorySource& source)
    : AccountedAllocator(std::move(device), source),
      alignment_(source.block_alignment()),
      zone_bytes_(zone_bytes(alignment_)),
      quarantine_limit_(host_accessible() ? kQuarantineBytes : kCopiedQuarantineBytes) {
  if (!host_accessible() && !source.host_copies()) {
    throw Error(ErrorCode::kUsage, this->device(),
                "the guarded allocator writes patterns, and this device has no memory to write",
                "run the check on the cpu, or use the caching allocator");
  }
}

GuardedAllocator::~GuardedAllocator() {
  set_recorder(nullptr);  // the recorder may be gone already
  std::vector<Damage> all = {empty_quarantine(0)};
  for (const auto& [address, block] : live_) {
    all.push_back(damage_of(block, false));
    release(block);
  }
  for (const Damage& damage : all) {
    if (damage) log_warn("[{}: end] {}", device(), *damage);
  }
}

void* GuardedAllocator::allocate(std::int64_t bytes, const AllocationTag& tag) {
  if (bytes == 0) return nullptr;
  check_request(bytes, tag);
  const std::int64_t rounded = round_up(bytes, alignment_);
  const std::int64_t mapped = round_up(rounded + 2 * zone_bytes_, kMappingUnit);
  void* mapping = map(mapped, tag);
  if (mapping == nullptr) {
    trim();
    mapping = map(mapped, tag);
  }
  if (mapping == nullptr) out_of_memory(bytes, 0, tag);
  const Block block{.mapping = static_cast<std::byte*>(mapping),
                    .user = static_cast<std::byte*>(mapping) + zone_bytes_,
                    .mapped_bytes = mapped,
                    .bytes = bytes,
                    .tag = tag,
                    .label = std::string(tag.label)};
  std::byte* const user = block.user;
  fill(block.mapping, zone_bytes_, kZonePattern);
  fill(user, bytes, kUninitialised);
  fill(user + bytes, block.end() - (user + bytes), kZonePattern);
  forbid(mapping, mapped);
  allow(user, bytes);
  const auto address = std::bit_cast<std::uint64_t>(user);
  live_.emplace(address, block);
  count_alloc({address, bytes, tag}, rounded);
  return user;
}

void GuardedAllocator::free(void* address) {
  if (address == nullptr) return;
  const auto found = live_.find(std::bit_cast<std::uint64_t>(address));
  TRACESTEP_CHECK(found != live_.end(), "{}: {} was freed twice or never allocated", device(),
                  address);
  const Block block = std::move(found->second);
  live_.erase(found);
  const Damage damage = damage_of(block, false);
  count_free({std::bit_cast<std::uint64_t>(address), block.bytes, block.tag},
             round_up(block.bytes, alignment_));
  Damage older;
  if (damage || block.mapped_bytes > quarantine_limit_) {
    release(block);  // damaged blocks are reported only once
  } else {
    older = empty_quarantine(quarantine_limit_ - block.mapped_bytes);
    fill(block.user, block.bytes, kFreed);
    forbid(block.mapping, block.mapped_bytes);
    quarantine_bytes_ += block.mapped_bytes;
    quarantine_.push_back(block);
  }
  throw_if("free", damage ? damage : older);
}

void GuardedAllocator::trim() {
  throw_if("trim", empty_quarantine(0));
}

std::vector<LiveAllocation> GuardedAllocator::live() const {
  std::vector<LiveAllocation> blocks;
  blocks.reserve(live_.size());
  for (const auto& [address, block] : live_) {
    append_parts(blocks, {address, block.bytes, block.tag});
  }
  return blocks;
}

void GuardedAllocator::check_all() {
  for (const auto& [address, block] : live_) throw_if("check_all", damage_of(block, false));
  for (const Block& block : quarantine_) throw_if("check_all", damage_of(block, true));
}

void GuardedAllocator::allow(const void* begin, std::int64_t bytes) const {
  if (host_accessible()) allow_access(begin, bytes);
}

void GuardedAllocator::forbid(const void* begin, std::int64_t bytes) const {
  if (host_accessible()) forbid_access(begin, bytes);
}

void GuardedAllocator::fill(std::byte* begin, std::int64_t bytes, std::uint16_t pattern) {
  if (host_accessible()) return fill_host(begin, bytes, pattern);
  if (pattern % 256 == pattern / 256) {
    return source().set_bytes(begin, static_cast<std::uint8_t>(pattern % 256), bytes);
  }
  std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
  fill_host(copy.data(), bytes, pattern);
  source().copy_in(begin, copy.data(), bytes);
}

std::optional<GuardedAllocator::ByteRange> GuardedAllocator::changed(const std::byte* begin,
                                                                     std::int64_t bytes,
                                                                     std::uint16_t pattern) const {
  std::vector<std::byte> copy;
  if (!host_accessible()) {
    copy.resize(static_cast<std::size_t>(bytes));
    source().copy_out(copy.data(), begin, bytes);
    begin = copy.data();
  }
  if (has_pattern(begin, bytes, pattern)) return std::nullopt;
  const auto differs = [&](std::int64_t i) { return begin[i] != byte_of(pattern, i); };
  ByteRange range{0, bytes - 1};
  while (!differs(range.first)) ++range.first;
  while (!differs(range.last)) --range.last;
  return range;
}

// Says which bytes were overwritten, counted from the first byte of the block; nullopt: none.
GuardedAllocator::Damage GuardedAllocator::damage_of(const Block& block, bool freed) const {
  allow(block.mapping, block.mapped_bytes);
  std::byte* const user = block.user;
  const auto before = changed(block.mapping, zone_bytes_, kZonePattern);
  const auto inside =
      freed ? changed(user, block.bytes, kFreed) : std::optional<ByteRange>(std::nullopt);
  const auto after = changed(user + block.bytes, block.end() - (user + block.bytes), kZonePattern);
  forbid(block.mapping, block.mapped_bytes);
  if (!freed) allow(user, block.bytes);
  std::string places;
  const auto add = [&](const char* place, const std::optional<ByteRange>& range,
                       std::int64_t shift) {
    if (!range) return;
    const std::int64_t first = range->first + shift, last = range->last + shift;
    places += fmt::format("{}{}, at offset{} {}", places.empty() ? "" : "; ", place,
                          first == last ? "" : "s", first);
    if (first != last) places += fmt::format(" to {}", last);
  };
  add("before its start", before, -zone_bytes_);
  add("after it was freed", inside, 0);
  add("after its end", after, block.bytes);
  if (places.empty()) return std::nullopt;
  return fmt::format("\"{}\" ({}, node {}, {} bytes{}) was written {}", block.label,
                     name_of(block.tag.category), block.tag.node, block.bytes,
                     freed ? ", freed" : "", places);
}

GuardedAllocator::Damage GuardedAllocator::empty_quarantine(std::int64_t bytes_to_keep) {
  Damage first;
  while (quarantine_bytes_ > bytes_to_keep) {
    const Block block = std::move(quarantine_.front());
    quarantine_.pop_front();
    quarantine_bytes_ -= block.mapped_bytes;
    Damage damage = damage_of(block, true);
    release(block);
    if (!first) first = std::move(damage);
  }
  return first;
}

void GuardedAllocator::release(const Block& block) {
  allow(block.mapping, block.mapped_bytes);
  unmap(block.mapping, block.mapped_bytes);
}

void GuardedAllocator::throw_if(const char* call, const Damage& damage) const {
  if (damage) throw DeviceError(device(), call, *damage);
}

std::unique_ptr<Allocator> make_guarded_allocator(std::string device, MemorySource& source) {
  return std::make_unique<GuardedAllocator>(std::move(device), source);
}

}  // namespace tracestep
