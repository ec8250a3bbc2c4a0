#include "base/env.h"

#include <array>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/units.h"

namespace tracestep::env {
namespace {

constexpr int kMaxThreads = 4096;
constexpr double kDefaultTimeoutS = 300.0;

#ifdef NDEBUG
constexpr bool kVerifyByDefault = false;
#else
constexpr bool kVerifyByDefault = true;
#endif

constexpr Variable kThreads = {"OMP_NUM_THREADS",
                               "threads of the CPU back end, unless a run says how many",
                               "every core this process may use", check_by<threads>};
constexpr Variable kNoColor = {"NO_COLOR", "any value: no colours in text output", "unset"};
constexpr Variable kVerify = {"TRACESTEP_VERIFY", "1: check the program after every pass; 0: not",
                              kVerifyByDefault ? "1" : "0", check_by<verify_after_every_pass>};
constexpr Variable kAllocator = {
    "TRACESTEP_ALLOCATOR",
    "caching, guarded (slow; finds writes out of bounds), or plain (cuda: nothing is pooled)",
    "caching", check_by<guarded_allocator>};
constexpr Variable kLog = {"TRACESTEP_LOG", "quiet, warn or info: messages on stderr", "info",
                           check_by<log_level>};

constexpr Variable kKernelCache = {"TRACESTEP_KERNEL_CACHE",
                                   "folder of the kernels that were compiled at run time, at most "
                                   "256 MiB; off: each process compiles its own",
                                   "tracestep in XDG_CACHE_HOME or ~/.cache"};

constexpr Variable kSystemRoot = {"TRACESTEP_SYSTEM_ROOT",
                                  "folder in place of / whose proc/meminfo, proc/self/cgroup and "
                                  "sys/fs/cgroup say how much memory a run may use",
                                  "/"};

constexpr Variable kTerm = {"TERM", "dumb: no progress line", "as the terminal sets it"};

constexpr std::array kAll = {kThreads, kNoColor,     kVerify,     kAllocator,
                             kLog,     kKernelCache, kSystemRoot, kTerm};

// Returns TRACESTEP_ALLOCATOR: caching (also if unset), guarded or plain. Throws for another word.
std::string allocator_name() {
  std::string text = value_of(kAllocator).value_or("caching");
  if (text == "caching" || text == "guarded" || text == "plain") return text;
  fail_usage(std::string(kAllocator.name), "unknown allocator \"{}\"; caching, guarded or plain",
             text);
}

}  // namespace

std::span<const Variable> variables() {
  return kAll;
}

void check(std::span<const Variable> variables) {
  for (const Variable& variable : variables) {
    if (variable.check != nullptr) variable.check();
  }
}

std::optional<std::string> value_of(const Variable& variable) {
  const char* text = std::getenv(std::string(variable.name).c_str());
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

std::optional<int> threads() {
  const auto text = value_of(kThreads);
  if (!text) return std::nullopt;
  const std::string first = text->substr(0, text->find(','));
  return static_cast<int>(parse_int(std::string(kThreads.name), first, 1, kMaxThreads));
}

bool no_color() {
  return value_of(kNoColor).has_value();
}

bool verify_after_every_pass() {
  const auto text = value_of(kVerify);
  if (!text) return kVerifyByDefault;
  return parse_int(std::string(kVerify.name), *text, 0, 1) == 1;
}

bool guarded_allocator() {
  return allocator_name() == "guarded";
}

bool plain_allocator() {
  return allocator_name() == "plain";
}

LogLevel log_level() {
  const std::string text = value_of(kLog).value_or("info");
  if (text == "quiet") return LogLevel::kQuiet;
  if (text == "warn") return LogLevel::kWarn;
  if (text == "info") return LogLevel::kInfo;
  fail_usage(std::string(kLog.name), "unknown level \"{}\"; quiet, warn or info", text);
}

std::string kernel_cache() {
  const std::string text = value_of(kKernelCache).value_or("");
  if (!text.empty()) return text == "off" ? "" : text;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::string(cache) + "/tracestep";
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/tracestep" : "";
}

std::string system_root() {
  return value_of(kSystemRoot).value_or("/");
}

bool dumb_terminal() {
  return value_of(kTerm) == "dumb";
}

double comm_timeout_s() {
  const auto text = value_of(kCommTimeout);
  if (!text) return kDefaultTimeoutS;
  return parse_real(std::string(kCommTimeout.name), *text, 0.1, std::numeric_limits<double>::max());
}

}  // namespace tracestep::env
