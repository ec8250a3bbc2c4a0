// The machine and the build that a result comes from, recorded as its `environment`. Leaves out
// whatever would identify a person: host name, user name, and the folders of paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"

namespace tracestep {

// The cores this process might run on (its affinity mask) when this was called first, at least 1.
int allowed_cores();

// `command_line`: the arguments as given. `threads`: those that the CPU back end uses; 0:
// OMP_NUM_THREADS if set, else all allowed cores. Unknown facts are null.
Json capture_environment(std::span<const std::string> command_line = {}, int threads = 0);

// The least memory limit of the control groups that a process is in, from its own up to the root,
// of version 2 or 1; nullopt: there is none. `groups`: its /proc/PID/cgroup. `root`: where they are
// mounted. In a container only the root may be there, which then is its own group.
std::optional<std::int64_t> memory_limit_of_groups(
    const std::filesystem::path& groups = "/proc/self/cgroup",
    const std::filesystem::path& root = "/sys/fs/cgroup");

// An argument with the folders of its path removed: "--tokens=/data/x.bin" gives "--tokens=x.bin".
std::string without_folders(const std::string& argument);

}  // namespace tracestep
