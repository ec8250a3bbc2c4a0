// How much memory the host has, as its kernel and the control groups of this process say it; both
// are looked up below a folder `root` that holds proc/ and sys/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/env.h"

namespace tracestep {

// Returns the least memory limit of the control groups that this process is in, from its own up to
// the root, of version 2 or 1; nullopt: there is none. In a container only the root may be there,
// which then is its own group.
std::optional<std::int64_t> memory_limit_of_groups(
    const std::filesystem::path& root = env::system_root());

// Returns the bytes that can be taken now without making the system swap or end a process: those
// that the kernel calls available, or less where a control group has less left of its limit. Files
// that are only cached count as free. nullopt: neither is known.
std::optional<std::int64_t> available_memory(
    const std::filesystem::path& root = env::system_root());

// Returns the share of free memory that a run may use: nine tenths. The rest is for what nobody
// counts beforehand: packed operands, the threads' stacks, page tables, other programs that grow.
constexpr std::int64_t usable_part(std::int64_t bytes) {
  return bytes / 10 * 9;
}

}  // namespace tracestep
