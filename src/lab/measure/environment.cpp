// Reads /proc and /sys, as Linux has them; anything missing becomes null.
#include "lab/measure/environment.h"

#include <sys/utsname.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/cores.h"
#include "base/env.h"
#include "base/host_memory.h"
#include "lab/measure/commit.h"
#include "lab/measure/host_facts.h"
#include "lab/report/columns.h"

#ifndef TRACESTEP_VERSION
#define TRACESTEP_VERSION "unknown"
#endif
#ifndef TRACESTEP_BUILD_TYPE
#define TRACESTEP_BUILD_TYPE "unknown"
#endif

namespace tracestep {
namespace {

// Names, as in /proc/cpuinfo, of features by which kernels for a CPU may be chosen.
constexpr std::array<std::string_view, 14> kSimdFlags = {
    "sse4_2",      "avx",         "avx2",        "fma",      "f16c",  "avx512f", "avx512bw",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd", "sve",     "bf16"};

// Returns the text after the colon in the first line of /proc/cpuinfo that starts with `key`.
std::string cpuinfo(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t text = line.find_first_not_of(" \t", colon + 1);
    return text == std::string::npos ? "" : line.substr(text);
  }
  return "";
}

Json simd_flags() {
  std::string flags = cpuinfo("flags");
  if (flags.empty()) flags = cpuinfo("Features");
  std::istringstream words(flags);
  Json found = Json::array();
  for (std::string word; words >> word;) {
    if (std::ranges::find(kSimdFlags, word) != kSimdFlags.end()) found.push_back(word);
  }
  return found;
}

Json memory_total_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return {};
  return std::int64_t{pages} * page_bytes;
}

Json memory_limit_bytes() {
  const auto limit = memory_limit_of_groups();
  return limit ? Json(*limit) : Json();
}

// Returns the system's setting of huge pages: the word in brackets of "always [madvise] never".
Json huge_pages() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return line.substr(open + 1, close - open - 1);
}

Json kernel() {
  utsname name{};
  if (uname(&name) != 0) return {};
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

Json libc() {
#if defined(__GLIBC__)
  return fmt::format("glibc {}", gnu_get_libc_version());
#else
  return {};
#endif
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

std::string utc_now() {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

}  // namespace

std::string without_folders(const std::string& argument) {
  const bool is_option = argument.starts_with("-");
  const std::size_t equals = is_option ? argument.find('=') : std::string::npos;
  const std::size_t value = equals == std::string::npos ? 0 : equals + 1;
  // A folder given as "data/" keeps its name.
  const std::size_t end = argument.find_last_not_of('/');
  if (end == std::string::npos || end < value) return argument;
  const std::size_t slash = argument.rfind('/', end);
  if (slash == std::string::npos || slash < value) return argument;
  return argument.substr(0, value) + argument.substr(slash + 1);
}

Json capture_environment(std::span<const std::string> command_line, int threads) {
  Json out = Json::object();
  out["tool"] = "tracestep " TRACESTEP_VERSION;
  out["commit"] = or_null(kCommit);
  out["compiler"] = compiler();
  out["build_type"] = TRACESTEP_BUILD_TYPE;
  out["date_utc"] = utc_now();
  out["command_line"] = Json::array();
  for (const std::string& argument : command_line) {
    out["command_line"].push_back(without_folders(argument));
  }
  out["cpu"] = or_null(cpuinfo("model name"));
  out["cores"] = allowed_cores();
  out["threads"] = threads > 0 ? threads : env::threads().value_or(allowed_cores());
  out["simd"] = simd_flags();
  out["memory_total_bytes"] = memory_total_bytes();
  out["memory_limit_bytes"] = memory_limit_bytes();
  out["huge_pages"] = huge_pages();
  out["kernel"] = kernel();
  out["libc"] = libc();
  return out;
}

}  // namespace tracestep
