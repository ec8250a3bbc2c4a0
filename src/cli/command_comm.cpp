// tracestep comm: measures how long collectives take by themselves.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/units.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/processes.h"
#include "lab/comm/collectives.h"
#include "spec/axes.h"

namespace tracestep::cli {
namespace {

constexpr const char* kDefaultSizes = "1MiB,4MiB,16MiB,64MiB";
constexpr std::int64_t kMostRanks = 4096, kMostCalls = 1'000'000;
constexpr std::int64_t kMostBytes = std::int64_t{1}
                                    << 48;  // of all ranks it is a number of 64 bits

struct CommOptions {
  std::vector<std::string> collectives = kTimedCollectives;
  std::vector<std::int64_t> ranks{2, 4};
  RunSpec run{.place = {.threads = 1}};  // threads of each rank
  std::vector<std::int64_t> sizes;
  CollectiveSpec each;
  OutputOptions output;
};

std::vector<std::int64_t> parse_sizes(const std::string& where, const std::string& text) {
  std::vector<std::int64_t> out;
  for (const std::string& size : split_list(where, text)) {
    out.push_back(parse_bytes(where, size));
    if (out.back() <= kMostBytes) continue;
    fail_usage(where, "\"{}\" is more than {}", size, format_bytes(kMostBytes));
  }
  return out;
}

std::vector<CollectiveSpec> specs_of(const CommOptions& o) {
  using S = CollectiveSpec;
  return product<S>({o.each}, {axis<S>(o.collectives, &S::op), axis<S>(o.ranks, &S::ranks),
                               axis<S>(o.sizes, &S::bytes)});
}

int run_comm(CommOptions o, Cells& cells) {
  probe_output(o.output);
  o.run.parallel.ranks = processes() == nullptr ? 2 : processes()->count();
  o.run.shape.batch = o.run.parallel.ranks;
  o.run = placed(o.run, Takes::kFast, cells.use(), Ranks::kUsed);
  if (processes() != nullptr && !cells.is_child()) o.ranks = {processes()->count()};
  std::unique_ptr<Device> device;  // for the cells that are measured here
  const std::vector<CollectiveSpec> specs = specs_of(o);
  const auto measure_one = [&](const CollectiveSpec& spec, const StepObserver&) {
    if (device == nullptr) device = make_device(o.run);
    RunSpec run = o.run;
    run.parallel.ranks = spec.ranks;
    return time_collective(make_rank_devices(*device, run), run.place, spec);
  };
  // On CPUs ranks are threads of one process, on GPUs processes.
  const auto plan_of = [&](const CollectiveSpec& spec) {
    JobPlan out{.place = o.run.place, .has_time = false};
    (traits_of(out.place).has_own_links() ? out.processes : out.place.threads) = spec.ranks;
    out.peak_bytes = 2 * spec.ranks * spec.bytes;
    return out;
  };
  const auto times = cells.measure<CollectiveTimes>("collective", specs, {}, plan_of, measure_one);
  o.run.parallel.ranks = specs.back().ranks;
  CellTables out{.output = o.output,
                 .schema = "tracestep.comm/1",
                 .environment = cells.environment_of(o.run),
                 .tables = {collective_table(times)},
                 .done = times.size(),
                 .wanted = specs.size()};
  if (specs.size() == 1 && times.size() == 1 && times[0].status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "comm", times[0].detail);
  }
  return cells.finish(std::move(out));
}

}  // namespace

Command comm_command() {
  const auto options = std::make_shared<CommOptions>();
  options->sizes = parse_sizes("--bytes", kDefaultSizes);
  Command command{.name = "comm"};
  OptionSet& set = command.options;
  set.group("What to time");
  set.choices("--collective", options->collectives, kTimedCollectives, "which");
  set.lists_cells();
  set.integers("--ranks", options->ranks, {2, kMostRanks},
               "ranks of a group; all processes where there are several");
  set.lists_cells();
  set.value(
      "--bytes", "SIZE[,SIZE]", "sizes of the whole tensor, of float32",
      [options](const std::string& where, const std::string& text) {
        options->sizes = parse_sizes(where, text);
      },
      kDefaultSizes);
  set.lists_cells();
  add_flag(set, options->run, field_named("device"), "cpu; cuda, with launch");
  add_flag(set, options->run, field_named("memory_limit_bytes"));
  set.integer("--warmup", options->each.warmup, {0, kMostCalls}, "calls before the timed ones");
  set.integer("--calls", options->each.calls, {1, kMostCalls}, "timed calls");
  add_output_options(set, options->output);
  measures_with(command, options, run_comm);
  return command;
}

}  // namespace tracestep::cli
