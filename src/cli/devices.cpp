#include "cli/devices.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "backends/cpu/cpu_device.h"
#include "backends/null/null_device.h"
#include "backends/reference/reference_device.h"
#include "base/cores.h"
#include "base/env.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/shell_words.h"
#include "base/suggest.h"
#include "cli/cuda.h"
#include "cli/processes.h"
#include "lab/predict/devices.h"
#include "planning/needs.h"
#include "run/memory_limit.h"
#include "session/room.h"
#include "spec/step_program.h"
#include "weights/model_notes.h"

namespace tracestep::cli {
namespace {

// The number of CPU threads that each rank has.
int threads_of(const Place& place, int ranks = 1) {
  if (place.threads > 0) return place.threads;
  // Not the current affinity: the CPU back end binds this thread to a core once it has run.
  return std::max(1, env::threads().value_or(allowed_cores()) / ranks);
}

void check_ranks(const RunSpec& run, DeviceUse use, Ranks ranks) {
  if (ranks == Ranks::kRefused) {
    throw Error(ErrorCode::kUsage, "--parallel", "this command runs one rank alone",
                "leave it out; bench, memory, predict, profile, show and train have it");
  }
  if (use == DeviceUse::kRun && traits_of(run.place).has_own_links() && processes() == nullptr) {
    throw Error(ErrorCode::kUsage, "--parallel", "each GPU needs a process of its own",
                fmt::format("use tracestep launch -n {} -- …; memory --predict needs no GPU",
                            run.parallel.ranks));
  }
  RunSpec checked = run;
  if (ranks == Ranks::kUsedByLaterModel) {
    checked.parallel.ranks = run.parallel.replicas();
    checked.parallel.tensor = 1;
  }
  rank_shape(checked);  // throws where they cannot share the batch, or divide the model
}

// A name of --device, which commands take it, and how it is made and measured.
struct NamedDevice {
  std::string name;
  Takes taken_by = Takes::kFast;  // commands that take less refuse it
  DeviceFactory make;
  std::vector<Table> (*ceilings)(const RunSpec& run) = nullptr;
};

bool is_taken(const NamedDevice& device, Takes takes) {
  return (static_cast<int>(takes) & static_cast<int>(device.taken_by)) ==
         static_cast<int>(device.taken_by);
}

const std::vector<NamedDevice>& all_devices() {
  static const std::vector<NamedDevice> all{
      {"cpu", Takes::kFast,
       [](const RunSpec& run) {
         return make_cpu_device({.threads = threads_of(run.place),
                                 .guarded = env::guarded_allocator(),
                                 .memory_limit = limit_in_bytes(run.place)});
       },
       cpu_ceiling_tables},
      {"cuda", Takes::kFast, make_cuda, cuda_ceiling_tables},
      {"reference", Takes::kOracle,
       [](const RunSpec& run) {
         return make_reference_device(
             {.guarded = env::guarded_allocator(), .memory_limit = limit_in_bytes(run.place)});
       }},
      {"null", Takes::kPlanner, [](const RunSpec& run) {
         return make_null_device(
             {.traits = traits_of(run.place), .memory_limit = limit_in_bytes(run.place)});
       }}};
  return all;
}

// The device with this name. Error{kUsage} for unknown names, with the nearest one; for a device of
// a data sheet, with the flag that takes it.
const NamedDevice& device_named(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedDevice& device : all_devices()) names.push_back(device.name);
  const bool is_back_end = std::ranges::find(names, name) != names.end();
  if (!is_back_end && !devices_of_name(name).devices.empty()) {
    throw Error(ErrorCode::kUsage, "--device",
                fmt::format("\"{}\" is known by its published peaks, and runs are on one of {}",
                            name, fmt::join(names, ", ")),
                fmt::format("fit and predict take it as --published {}", shell_quoted(name)));
  }
  check_choice("--device", name, names);
  return *std::ranges::find(all_devices(), name, &NamedDevice::name);
}

const NamedDevice& row_of(const std::string& device) {
  return device_named(cuda_index(device) ? "cuda" : device);
}

}  // namespace

void register_devices() {
  for (const NamedDevice& device : all_devices()) register_device(device.name, device.make);
  register_group(connect_ranks);
  register_free_bytes(cuda_free_bytes);
}

void check_device(const RunSpec& run, Takes takes, DeviceUse use) {
  const std::string& device = run.place.device;
  const bool is_cuda = cuda_index(device).has_value();
  const NamedDevice& row = row_of(device);
  const DeviceTraits traits = traits_named(device);
  if ((run.precision.tf32 || run.precision.split) && !traits.has_product_formats()) {
    throw Error(ErrorCode::kUsage, "--precision",
                fmt::format("{} is how a GPU multiplies; {} has no such products",
                            name_of(run.precision), device),
                "use fp32, or --device cuda");
  }
  check_tuning(run.place);
  if (is_cuda) {
    if (use == DeviceUse::kRun) check_cuda(run.place);
    return;
  }
  if (!is_taken(row, takes)) {
    std::vector<std::string> usable;
    for (const NamedDevice& one : all_devices()) {
      if (is_taken(one, takes)) usable.push_back(one.name);
    }
    throw Error(ErrorCode::kUsage, "--device",
                traits.computes
                    ? fmt::format("{}, the slow float64 oracle, is not for this command", device)
                    : fmt::format("{} computes nothing, and this command needs numbers", device),
                fmt::format("use {}", fmt::join(usable, " or ")));
  }
  if (!computes_in(traits.kind, DType::kF32) && run.precision != Precision()) {
    throw Error(ErrorCode::kUsage, "--precision",
                "reference computes in float64 and has no other precision", "leave it out");
  }
}

RunSpec placed(RunSpec run, Takes takes, DeviceUse use, Ranks ranks) {
  run.place.device = device_of_process(run.place.device);
  check_device(run, takes, use);
  const bool runs = use == DeviceUse::kRun && traits_named(run.place.device).computes;
  run.model = checked_model(std::move(run.model), run.shape.context, runs);
  if (run.parallel.is_on()) {
    check_ranks(run, use, ranks);
  } else if (processes() != nullptr && use == DeviceUse::kRun) {
    throw Error(ErrorCode::kUsage, "--parallel",
                fmt::format("{} processes were started for one rank", processes()->count()),
                fmt::format("use dp={}", processes()->count()));
  }
  run.place.threads = threads_of(run.place, run.parallel.ranks);
  return run;
}

std::vector<RunSpec> runs_of(const RunGrid& grid, Takes takes, DeviceUse use, Ranks ranks) {
  std::vector<RunSpec> out = grid.runs();
  for (RunSpec& run : out) run = placed(std::move(run), takes, use, ranks);
  return out;
}

RunSpec run_of(const RunGrid& grid, Takes takes, DeviceUse use, Ranks ranks) {
  return runs_of(grid, takes, use, ranks).front();
}

std::vector<Table> ceiling_tables(const RunSpec& run) {
  return row_of(run.place.device).ceilings(run);
}

std::unique_ptr<Device> make_reference(const RunSpec& run) {
  RunSpec reference = run;
  reference.precision = {};
  reference.place = {.device = "reference", .threads = run.place.threads};
  return make_device(reference);
}

std::int64_t memory_of(const Place& place, const Json& environment) {
  if (place.memory_limit_bytes > 0) return place.memory_limit_bytes;
  std::int64_t room = 0;
  const auto items = traits_of(place).has_own_memory()
                         ? std::vector<const char*>{"gpu_memory_bytes"}
                         : std::vector<const char*>{"memory_total_bytes", "memory_limit_bytes"};
  for (const char* item : items) {
    const Json* bytes = environment.find(item);
    if (bytes == nullptr || !bytes->is_int()) continue;
    room = room == 0 ? bytes->as_int() : std::min(room, bytes->as_int());
  }
  return room;
}

Place with_limit(Place place, const Json& environment) {
  const DeviceTraits traits = traits_of(place);
  const bool is_host = traits.computes && traits.shares_kernels_among_threads();
  const bool is_free = is_host && place.memory_limit_bytes == 0;
  if (is_free) place.memory_limit_bytes = usable_part(memory_of(place, environment));
  return place;
}

DeviceTraits traits_of(const Place& place) {
  return traits_named(place.device, threads_of(place));
}

}  // namespace tracestep::cli
