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
  std::optional<double> load_1min = {};       // tasks that ran or waited, over a minute
  std::optional<std::int64_t> runnable = {};  // tasks that run or wait now, this one included
  std::optional<std::string> governor = {};   // of the first core: "performance"
  std::optional<double> clock_low_mhz = {},
                        clock_high_mhz = {};  // of the slowest and the fastest core now
  // Cumulative seconds of the cores that this process may run on: in which they worked, in which
  // the hypervisor ran other machines, and that part of the first which this process took.
  std::optional<double> busy_s = {}, stolen_s = {}, own_s = {};
  double at_s = 0;  // on a steady clock
};

// Reads the first line of a file of /proc or /sys; empty if there is no such file.
std::string first_line(const std::filesystem::path& path);

HostFacts read_host_facts();
// `root`: where /proc and /sys are looked for; `cores`: those whose time counts.
HostFacts read_host_facts(const std::filesystem::path& root, std::span<const int> cores);

// How many cores other processes, or other machines on this host, kept busy between two readings;
// none when they are less than half a second apart (the kernel counts in hundredths) or incomplete.
std::optional<double> others_cores(const HostFacts& before, const HostFacts& after);

// Each known fact becomes a member, with the unit in its name.
Json to_json(const HostFacts& facts);

}  // namespace tracestep
