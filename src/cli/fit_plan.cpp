#include "cli/fit_plan.h"

#include <algorithm>

#include "base/error.h"
#include "cli/devices.h"

namespace tracestep::cli {
namespace {

constexpr std::int64_t kMostDevices = 65'536;

}  // namespace

void add_plan_options(OptionSet& set, PlanOptions& o) {
  set.group("On how many devices, and for how long");
  set.integer("--gpus", o.gpus, {1, kMostDevices},
              "devices that share the step: chooses how (replicas, shards, tensor parallel, "
              "micro-batches) and what else makes it fit");
  set.integer("--nodes", o.nodes, {1, kMostDevices},
              "nodes that these are on, equally; by default as few as their link joins");
  std::vector<std::string> smallest{"gpus"};
  set.value("--smallest", "gpus", "find the fewest devices that fit, and are done in --days",
            [&o](const std::string& where, const std::string& text) {
              check_choice(where, text, std::vector<std::string>{"gpus"});
              o.is_smallest = true;
            });
  set.real("--link-gb-s", o.link_gb_s, {.min = 0.0},
           "GB/s that each device gets from the others of its node, the bus bandwidth of comm; by "
           "default 0.73 of the data sheet's link");
  set.real("--network-gb-s", o.network_gb_s, {.min = 0.0},
           "GB/s that each device gets from other nodes");
  add_data_options(set, o);
  set.real(
      "--days", o.days, {.min = 0.001},
      "days to train for: says how many tokens that is, or, with --tokens and --smallest gpus, "
      "how many devices are done by then");
  set.real("--cost-per-hour", o.cost_per_hour, {.min = 0.0}, "of one device: says the price");
}

void check_plan(const PlanOptions& o, const RunGrid& grid, const std::string& largest) {
  const auto fail = [](const char* flag, const char* what, const char* hint) {
    throw Error(ErrorCode::kUsage, flag, what, hint);
  };
  if (o.has_devices() && grid.is_given("parallel")) {
    fail("--parallel", "how devices share the step is what --gpus chooses", "give one of the two");
  }
  if (o.gpus > 0 && o.is_smallest) {
    fail("--smallest", "how many devices there are is given by --gpus", "give one of the two");
  }
  if (o.nodes > 0 && (o.gpus == 0 || o.gpus % o.nodes != 0)) {
    fail("--nodes", "every node has as many devices as the others",
         "give --gpus, a multiple of it");
  }
  if (o.is_smallest && !largest.empty() && largest != kLargestModel) {
    fail("--largest", "the fewest devices are of one batch and one context",
         "give --gpus instead of --smallest");
  }
  const bool is_one = o.has_devices() ? o.gpus == 1 : !grid.is_given("parallel");
  if (is_one && (o.link_gb_s > 0 || o.network_gb_s > 0)) {
    fail(o.link_gb_s > 0 ? "--link-gb-s" : "--network-gb-s", "one device alone uses no link",
         "leave it out, or give --gpus or --parallel");
  }
  if (largest == kLargestModel && (grid.is_given("model") || grid.is_given("size"))) {
    fail("--largest", "the model is what is searched for", "leave out --model and --size");
  }
  if (o.is_training() && !largest.empty() && largest != kLargestModel) {
    fail(flag_of_training(o), "a training is of one batch and one context",
         "leave out --largest, and give the batch that it found");
  }
  check_data(o);
  if (o.has_tokens() && o.days > 0 && !o.is_smallest) {
    fail("--days", "how many days the tokens take is what is answered",
         "give one of the two, or --smallest gpus: the fewest devices that are done by then");
  }
  if (o.cost_per_hour > 0 && !o.is_training()) {
    fail("--cost-per-hour", "a price is of a number of hours", "give --tokens or --days");
  }
}

RunGrid on_planned_device(RunGrid grid, const PlanOptions& o) {
  if (o.has_devices() && !grid.is_given("device")) grid.offer("device", {"cuda"});
  return grid;
}

std::optional<Predictor> predictor_of(const TimeSource& source, const RunSpec& run,
                                      const PlanOptions& o) {
  if (run.parallel.is_on() && !traits_of(run.place).has_own_memory()) {
    throw Error(ErrorCode::kUsage, "--parallel", "ranks on one CPU share its memory and its cores",
                "for devices of their own give --device cuda or --published");
  }
  if (!source.model) return std::nullopt;
  Predictor out = source.predictor();
  if (run.parallel.is_on()) out.link = link_of(o, run.parallel.ranks);
  return out;
}

std::string note_of_link(const PublishedDevice& device, int ranks) {
  return fmt::format(
      "; ranks of one host, linked by {} at {:.0f} GB/s each way, {:.0f} % of the nominal rate: "
      "comm "
      "measures it, --link-gb-s takes it",
      ranks <= device.link_ranks ? device.link : "PCIe", device.reached_link_gb_s(ranks),
      100 * kLinkShare);
}

std::string note_of(const Fitted& found) {
  if (!found.stopped) return {};
  switch (*found.stopped) {
    case Stopped::kAtNode:
      return fmt::format(
          "the {} devices of one node are too few: for more, --network-gb-s says how fast the "
          "network between nodes is",
          found.gpus);
    case Stopped::kAtMostTried:
      return fmt::format("more than {} devices were not tried", found.gpus);
    case Stopped::kAtBatch: break;
  }
  return fmt::format("{} devices cannot share the step: for more than {} give a larger --batch",
                     2 * found.gpus, found.gpus);
}

}  // namespace tracestep::cli
