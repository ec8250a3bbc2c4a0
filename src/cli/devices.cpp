#include "cli/devices.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/threads.h"
#include "backends/null/null_device.h"
#include "backends/reference/reference_device.h"
#include "base/env.h"
#include "base/error.h"
#include "cli/cuda.h"

namespace tracestep::cli {
namespace {

const std::vector<std::string> kNames{"cpu", "cuda", "reference", "null"};

bool has_precision(const RunOptions& run, std::string_view name) {
  return std::ranges::find(run.precisions, name) != run.precisions.end();
}

}  // namespace

int threads_of(const RunOptions& run) {
  if (run.threads > 0) return run.threads;
  // Not the affinity of now: the CPU back end binds this thread to a core once it has run.
  return env::threads().value_or(cpu::allowed_cores());
}

void check_device(const RunOptions& run, std::initializer_list<const char*> usable, DeviceUse use) {
  const bool is_cuda = cuda_index(run.device).has_value();
  if (!is_cuda) check_choice("--device", run.device, kNames);
  if (has_precision(run, "tf32") && !is_cuda) {
    throw Error(ErrorCode::kUsage, "--precision",
                fmt::format("tf32 is how a GPU multiplies; {} has no such products", run.device),
                "use fp32, or --device cuda");
  }
  check_tuning(run);
  if (is_cuda) {
    if (use == DeviceUse::kRun) check_cuda(run);
    return;
  }
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

std::unique_ptr<Device> make_device(const RunOptions& run, std::string_view precision) {
  check_device(run, {"cpu", "cuda", "reference", "null"});
  if (cuda_index(run.device)) {
    return make_cuda(run, precision.empty() ? run.precisions.front() : precision);
  }
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
  const bool is_cuda = cuda_index(run.device).has_value();
  return {.kind = is_cuda                     ? DeviceKind::kCuda
                  : run.device == "reference" ? DeviceKind::kReference
                                              : DeviceKind::kCpu,
          .threads = threads_of(run)};
}

}  // namespace tracestep::cli
