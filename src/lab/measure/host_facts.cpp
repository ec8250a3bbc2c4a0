#include "lab/measure/host_facts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/cores.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

// Reads the load and the running tasks from /proc/loadavg: "0.31 0.40 0.38 2/345 6789".
void read_load(const fs::path& root, HostFacts& out) {
  std::istringstream line(first_line(root / "proc/loadavg"));
  double one = 0, five = 0, fifteen = 0;
  std::int64_t runnable = 0;
  if (!(line >> one >> five >> fifteen)) return;
  out.load_1min = one;
  if (line >> runnable) out.runnable = runnable;
}

void add_clock(double mhz, HostFacts& out) {
  out.clock_low_mhz = std::min(out.clock_low_mhz.value_or(mhz), mhz);
  out.clock_high_mhz = std::max(out.clock_high_mhz.value_or(mhz), mhz);
}

// Reads the governor, and the clocks from the frequency driver or, without one, /proc/cpuinfo.
void read_clocks(const fs::path& root, HostFacts& out) {
  const fs::path cpus = root / "sys/devices/system/cpu";
  for (int core = 0;; ++core) {
    const fs::path folder = cpus / ("cpu" + std::to_string(core));
    std::error_code error;
    if (!fs::exists(folder, error)) break;
    if (core == 0) {
      const std::string governor = first_line(folder / "cpufreq/scaling_governor");
      if (!governor.empty()) out.governor = governor;
    }
    double khz = 0;
    if (std::istringstream(first_line(folder / "cpufreq/scaling_cur_freq")) >> khz) {
      add_clock(khz / 1e3, out);
    }
  }
  if (out.clock_low_mhz) return;
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    double mhz = 0;
    if (!line.starts_with("cpu MHz")) continue;
    if (std::istringstream(line.substr(line.find(':') + 1)) >> mhz) add_clock(mhz, out);
  }
}

// Adds up busy and stolen time of `cores` from /proc/stat: "cpu3 user nice system idle iowait …".
void read_times(const fs::path& root, std::span<const int> cores, HostFacts& out) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream file(root / "proc/stat");
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
    line >> name >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal;
    const auto is_it = [&](int core) { return name == fmt::format("cpu{}", core); };
    if (!line || std::ranges::none_of(cores, is_it)) continue;
    out.busy_s = out.busy_s.value_or(0) + (user + nice + system + irq + softirq) / ticks;
    out.stolen_s = out.stolen_s.value_or(0) + steal / ticks;
  }
}

void read_own_time(HostFacts& out) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  out.own_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

HostFacts read_host_facts() {
  return read_host_facts("/", allowed_core_numbers());
}

HostFacts read_host_facts(const fs::path& root, std::span<const int> cores) {
  HostFacts out;
  read_load(root, out);
  read_clocks(root, out);
  read_times(root, cores, out);
  read_own_time(out);
  out.at_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return out;
}

std::optional<double> others_cores(const HostFacts& before, const HostFacts& after) {
  constexpr double kShortest_s = 0.5;
  const double elapsed = after.at_s - before.at_s;
  if (!before.busy_s || !after.busy_s || !before.own_s || !after.own_s) return {};
  if (elapsed < kShortest_s) return {};
  const double stolen = after.stolen_s.value_or(0) - before.stolen_s.value_or(0);
  const double others = (*after.busy_s - *before.busy_s) - (*after.own_s - *before.own_s) + stolen;
  return std::max(0.0, others / elapsed);
}

Json to_json(const HostFacts& facts) {
  Json out = Json::object();
  const auto add = [&out](const char* name, const auto& fact) {
    out[name] = fact ? Json(*fact) : Json();
  };
  add("load_1min", facts.load_1min);
  add("runnable", facts.runnable);
  add("governor", facts.governor);
  add("clock_low_mhz", facts.clock_low_mhz);
  add("clock_high_mhz", facts.clock_high_mhz);
  return out;
}

}  // namespace tracestep
