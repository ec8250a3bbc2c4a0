// A folder that stands for a machine with so much memory, wherever the program looks for it
// (base/host_memory.h).
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "support/temp_folder.h"

namespace tracestep::testing {

class MemoryRoot {
 public:
  // Writes a machine with so many bytes available, as the kernel reports them.
  explicit MemoryRoot(std::int64_t available_bytes) {
    folder_.write("proc/meminfo", fmt::format("MemTotal:     99999999 kB\nMemFree:    1 kB\n"
                                              "MemAvailable: {} kB\n",
                                              available_bytes / 1024));
    folder_.write("proc/self/cgroup", "0::/\n");
  }

  // Puts the job in a group of version 2 or 1, with this limit and use.
  MemoryRoot& in_group(int version, std::int64_t limit_bytes, std::int64_t used_bytes = 0) {
    const bool is_second = version == 2;
    folder_.write("proc/self/cgroup", is_second ? "0::/job\n" : "4:memory:/job\n0::/\n");
    const std::string group = is_second ? "sys/fs/cgroup/job/" : "sys/fs/cgroup/memory/job/";
    folder_.write(group + (is_second ? "memory.max" : "memory.limit_in_bytes"),
                  std::to_string(limit_bytes) + "\n");
    folder_.write(group + (is_second ? "memory.current" : "memory.usage_in_bytes"),
                  std::to_string(used_bytes) + "\n");
    return *this;
  }

  std::string path() const { return folder_.path().string(); }
  // The variable of the environment by which a process takes this for its machine.
  std::string variable() const { return "TRACESTEP_SYSTEM_ROOT=" + path(); }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
};

}  // namespace tracestep::testing
