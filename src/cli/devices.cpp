#include "cli/devices.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/threads.h"
#include "backends/null/null_device.h"
#include "backends/reference/reference_device.h"
#include "base/env.h"
#include "base/error.h"

namespace tracestep::cli {
namespace {

const std::vector<std::string> kNames{"cpu", "reference", "null"};

// "cuda" or "cuda:3".
bool is_cuda(std::string_view name) {
  if (!name.starts_with("cuda")) return false;
  name.remove_prefix(4);
  if (name.empty()) return true;
  if (name[0] != ':' || name.size() == 1) return false;
  return std::ranges::all_of(name.substr(1), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

int threads_of(const RunOptions& run) {
  if (run.threads > 0) return run.threads;
  // Not the affinity of now: the CPU back end binds this thread to a core once it has run.
  return env::threads().value_or(cpu::allowed_cores());
}

void check_device(const RunOptions& run, std::initializer_list<const char*> usable) {
  if (is_cuda(run.device)) {
    throw Error(ErrorCode::kDevice, "--device",
                fmt::format("{} is not there: this build has no CUDA back end", run.device),
                "use cpu");
  }
  check_choice("--device", run.device, kNames);
  if (std::ranges::find(usable, run.device) == usable.end()) {
    throw Error(ErrorCode::kUsage, "--device",
                run.device == "null"
                    ? "null computes nothing, and this command needs numbers"
                    : "reference, the slow float64 oracle, is not for this command",
                fmt::format("use {}", fmt::join(usable, " or ")));
  }
  if (run.device == "reference" && run.precisions != RunOptions().precisions) {
    throw Error(ErrorCode::kUsage, "--precision",
                "reference computes in float64 and has no other precision", "leave it out");
  }
}

std::unique_ptr<Device> make_device(const RunOptions& run) {
  check_device(run, {"cpu", "reference", "null"});
  if (run.device == "reference") {
    return make_reference_device(
        {.guarded = env::guarded_allocator(), .memory_limit = run.memory_limit_bytes});
  }
  if (run.device == "null") {
    return make_null_device({.traits = traits_of(run), .memory_limit = run.memory_limit_bytes});
  }
  return make_cpu_device({.threads = threads_of(run),
                          .guarded = env::guarded_allocator(),
                          .memory_limit = run.memory_limit_bytes});
}

DeviceTraits traits_of(const RunOptions& run) {
  return {.kind = run.device == "reference" ? "reference" : "cpu", .threads = threads_of(run)};
}

}  // namespace tracestep::cli
