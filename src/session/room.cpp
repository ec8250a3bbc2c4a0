#include "session/room.h"

#include <algorithm>
#include <fstream>

#include "analysis/buffer_plan.h"
#include "analysis/memory_map.h"
#include "base/hash.h"
#include "base/host_memory.h"
#include "base/units.h"
#include "run/memory_limit.h"

namespace tracestep {
namespace {

FreeBytes& free_bytes_of() {
  static FreeBytes all;
  return all;
}

// The bytes of host memory that all devices together need, and how many of these they hold already.
struct Sum {
  std::int64_t needed = 0, held = 0;
  std::int64_t missing() const { return std::max<std::int64_t>(0, needed - held); }
};

Sum on_host(std::span<const Wanted> wanted) {
  Sum out;
  for (const Wanted& w : wanted) {
    out.needed += w.host_bytes;
    if (w.device->traits().has_own_memory()) continue;
    out.needed += w.device->allocator().stats().requested_bytes + w.bytes;
    out.held += w.device->resident_reserved_bytes();
  }
  return out;
}

std::uint64_t number_of_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return std::stoull(hash_text(std::as_bytes(std::span(id))), nullptr, 16);
}

// The sum of `own` over the processes on this host.
std::int64_t sum_on_host(Processes& processes, std::int64_t own) {
  const auto values = processes.exchange(static_cast<std::uint64_t>(own));
  const auto hosts = processes.exchange(number_of_host());
  std::int64_t out = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_here = hosts[i] == hosts[static_cast<std::size_t>(processes.rank())];
    if (is_here) out += static_cast<std::int64_t>(values[i]);
  }
  return out;
}

std::optional<DoesNotFit> lack_of_host(std::span<const Wanted> wanted, Processes* processes) {
  const Sum sum = on_host(wanted);
  // Read before the exchange: no process has taken its part yet.
  const std::optional<std::int64_t> available = available_memory();
  const std::int64_t missing =
      processes == nullptr ? sum.missing() : sum_on_host(*processes, sum.missing());
  if (!available || missing <= usable_part(*available)) return std::nullopt;
  Device& device = *wanted.front().device;
  const std::string where =
      device.traits().has_own_memory() ? device.name() + ", host memory" : device.name();
  return DoesNotFit(where, missing + sum.held, usable_part(*available) + sum.held, true);
}

std::optional<DoesNotFit> lack_of_own(const Wanted& wanted) {
  Device& device = *wanted.device;
  if (!device.traits().has_own_memory() || !free_bytes_of()) return std::nullopt;
  const std::optional<std::int64_t> free = free_bytes_of()(device);
  const AllocatorStats& stats = device.allocator().stats();
  const std::int64_t needed = stats.requested_bytes + wanted.bytes;
  if (!free || needed <= *free + stats.reserved_bytes) return std::nullopt;
  return DoesNotFit(device.name(), needed, *free + stats.reserved_bytes, false);
}

// Throws in every process the error of the first process that lacks room.
void end_together(Processes& processes, const std::optional<DoesNotFit>& lack) {
  const auto share = [&](std::int64_t bytes) {
    return processes.exchange(static_cast<std::uint64_t>(bytes));
  };
  const auto needed = share(lack ? lack->requested_bytes() : 0);
  const auto free = share(lack ? lack->limit_bytes() : 0);
  const auto on_host = share(lack && lack->lack().is_on_host ? 1 : 0);
  const auto found = std::ranges::find_if(needed, [](std::uint64_t bytes) { return bytes > 0; });
  if (found == needed.end()) return;
  const auto rank = static_cast<std::size_t>(found - needed.begin());
  throw DoesNotFit(fmt::format("rank {}", rank), static_cast<std::int64_t>(*found),
                   static_cast<std::int64_t>(free[rank]), on_host[rank] > 0);
}

}  // namespace

DoesNotFit::DoesNotFit(const std::string& where, std::int64_t needed_bytes,
                       std::int64_t bound_bytes, bool on_host, Bound bound)
    : OutOfMemory(where, needed_bytes, bound_bytes, {},
                  {.is_on_host = on_host, .is_foreseen = true}) {
  // Replaces the base's message, which speaks of a failed request: none was made.
  const std::string room = format_bytes(bound_bytes);
  Error::operator=(
      Error(ErrorCode::kOutOfMemory, where,
            fmt::format("it does not fit: it needs {}, and {}", format_bytes(needed_bytes),
                        bound == Bound::kLimit ? "the limit is " + room
                                               : "this machine has " + room + " free"),
            TRACESTEP_OPTION(memory_limit) " none tries anyway"));
}

Wanted wanted_by(const RunSpec& run, Store& store, const Program& program) {
  Device& device = store.device();
  const bool has_own = device.traits().has_own_memory();
  std::int64_t leaves = 0, held = 0, on_host = 0, largest = 0;
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const std::int64_t bytes = leaf.type.bytes();
    const bool is_held = leaf.leaf != LeafKind::kInput && store.find(leaf.name) != nullptr;
    if (has_own && leaf.memory == Memory::kHost) {
      on_host += is_held ? 0 : bytes;
      continue;
    }
    leaves += bytes;
    held += is_held ? bytes : 0;
    if (leaf.leaf == LeafKind::kParameter && !is_held) largest = std::max(largest, bytes);
  }
  const Parallel& parallel = run.parallel;
  const std::int64_t being_set =
      2 * largest * (parallel.shards_weights() ? parallel.ranks : parallel.tensor);
  const std::int64_t peak = predicted_peak_bytes(program, plan_buffers(program), device.traits());
  if (has_own) return {&device, peak - held, on_host + being_set};
  return {&device, std::max(peak, leaves + being_set) - held};
}

void check_room(const Place& place, std::span<const Wanted> wanted, Processes* processes) {
  if (place.memory_limit_bytes == kAnyMemory || !wanted.front().device->computes()) return;
  std::optional<DoesNotFit> lack = lack_of_host(wanted, processes);
  for (std::size_t i = 0; i < wanted.size() && !lack; ++i) lack = lack_of_own(wanted[i]);
  if (processes != nullptr) return end_together(*processes, lack);
  if (lack) throw *lack;
}

void register_free_bytes(FreeBytes free_bytes) {
  free_bytes_of() = std::move(free_bytes);
}

}  // namespace tracestep
