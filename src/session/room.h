// Checks, before anything is allocated, that there is room for all of it: a CPU's memory is the
// host's, where the system gives out more than it has and then swaps, or ends a process. Devices
// that compute nothing are not checked, nor are runs whose limit is kAnyMemory.
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

// Nothing was allocated. `requested_bytes` and `limit_bytes` are all that is needed and what is
// free.
class DoesNotFit : public OutOfMemory {
 public:
  DoesNotFit(const std::string& where, std::int64_t needed_bytes, std::int64_t free_bytes,
             bool on_host);
};

// The memory that one device needs beside what lives on it already.
struct Wanted {
  Device* device = nullptr;
  std::int64_t bytes = 0;
  std::int64_t host_bytes = 0;  // in the host's memory, where the device has its own
};

// Bytes that a program's executor will allocate and `store` does not hold yet, or, if more, those
// that setting the weights takes: the host then holds one weight twice, as it was read and in its
// new type.
Wanted wanted_by(const RunSpec& run, Store& store, const Program& program);

// Throws DoesNotFit unless all of it finds room. `processes`: those that want as much at the same
// time, and all make this call; those on one host are counted together. nullptr: none.
void check_room(const Place& place, std::span<const Wanted> wanted, Processes* processes = nullptr);

// The bytes that are free on a device that has its own memory; nullopt: not known. Who names the
// back ends registers it.
using FreeBytes = std::function<std::optional<std::int64_t>(Device& device)>;
void register_free_bytes(FreeBytes free_bytes);

}  // namespace tracestep
