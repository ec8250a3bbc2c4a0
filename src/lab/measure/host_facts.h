// The state of the host around a measurement: load, CPU clocks and their governor, and how much CPU
// time others took. Read from /proc and /sys as Linux has them; what is not there is left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"

namespace tracestep {

struct HostFacts {
  // The number of tasks that ran or waited, averaged over a minute.
  std::optional<double> load_1min = {};
  // The number of tasks that run or wait now, this process included.
  std::optional<std::int64_t> runnable = {};
  std::optional<std::string> governor = {};  // The governor of the first core: "performance".
  std::optional<double> clock_low_mhz = {},
                        clock_high_mhz = {};  // The lowest and the highest clock of the cores now.
  // Cumulative seconds of the cores that this process may use: in which they were busy, in which
  // the hypervisor ran other virtual machines, and, of the busy ones, those of this process.
  std::optional<double> busy_s = {}, stolen_s = {}, own_s = {};
  double at_s = 0;  // The time of the reading, on a steady clock.
};

// Reads the first line of a file of /proc or /sys; empty if there is no such file.
std::string first_line(const std::filesystem::path& path);

HostFacts read_host_facts();
// Reads the host's state below `root`, which has /proc and /sys; adds up the seconds of `cores`.
HostFacts read_host_facts(const std::filesystem::path& root, std::span<const int> cores);

// Returns the number of cores that other processes, or other virtual machines of this host, kept
// busy between two readings. nullopt if the readings are less than half a second apart (the kernel
// counts in hundredths) or incomplete.
std::optional<double> others_cores(const HostFacts& before, const HostFacts& after);

// Returns an object with a member for each known fact; the member's name has the unit.
Json to_json(const HostFacts& facts);

}  // namespace tracestep
