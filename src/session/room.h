// Checks, before anything is allocated, that there is room for everything. A CPU's memory is the
// host's, and the system gives out more than it has and then swaps or ends a process. Not checked
// are devices that compute nothing, and runs whose limit is kAnyMemory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "run/run_spec.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/processes.h"
#include "runtime/store.h"

namespace tracestep {

// The bound that a need exceeds: the memory that is free, or the run's own limit.
enum class Bound : std::uint8_t { kFree, kLimit };

// Thrown before anything is allocated. `requested_bytes` is everything that is needed, and
// `limit_bytes` what is free, or the limit.
class DoesNotFit : public OutOfMemory {
 public:
  DoesNotFit(const std::string& where, std::int64_t needed_bytes, std::int64_t bound_bytes,
             bool on_host, Bound bound = Bound::kFree);
};

// The memory that a device needs besides what is allocated on it already.
struct Wanted {
  Device* device = nullptr;
  std::int64_t bytes = 0;
  std::int64_t host_bytes = 0;  // Bytes in the host's memory, for a device with memory of its own.
};

// The bytes that a program's executor will allocate and `store` does not hold yet; or, if that is
// more, the bytes for setting the weights, when the host holds one weight twice: as it was read and
// converted.
Wanted wanted_by(const RunSpec& run, Store& store, const Program& program);

// Throws DoesNotFit unless there is room for everything. `processes`: the processes of the run; all
// must make this call at the same time, and the needs of those on one host are added up. nullptr:
// this process is alone.
void check_room(const Place& place, std::span<const Wanted> wanted, Processes* processes = nullptr);

// Returns the free bytes of a device with its own memory; nullopt: not known. The program's entry
// point registers it.
using FreeBytes = std::function<std::optional<std::int64_t>(Device& device)>;
void register_free_bytes(FreeBytes free_bytes);

}  // namespace tracestep
