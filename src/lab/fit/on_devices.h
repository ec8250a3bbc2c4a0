// Plans a step for several devices: how they share it, how few devices are enough, and the largest
// batch, context or model that fits on a number of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lab/fit/largest.h"
#include "lab/fit/plan.h"
#include "lab/predict/devices.h"
#include "lab/predict/predict.h"
#include "lab/predict/time_source.h"
#include "spec/run_grid.h"

namespace tracestep {

// The value of --largest that asks for the largest model; its other values are those of Growth.
inline constexpr const char* kLargestModel = "model";

// The devices that a plan is for, and the training that they run.
struct DevicesQuestion {
  std::int64_t gpus = 0, nodes = 0;  // 0: not given
  // The bandwidth of each device within a node and between nodes; 0: not given.
  double link_gb_s = 0, network_gb_s = 0;
  std::int64_t tokens = 0;             // The number of tokens to train on; 0: not given.
  double days = 0, cost_per_hour = 0;  // 0: not given
  bool is_smallest = false;            // True: find the fewest devices that are enough.
  // True: no batch was given, so it follows from the number of devices.
  bool is_batch_assumed = false;
  // The device's data sheet; nullptr if none is known that names its links.
  const PublishedDevice* published = nullptr;

  bool has_devices() const { return gpus > 0 || is_smallest; }
};

// Why a search for the fewest devices ended before it found enough.
enum class Stopped : std::uint8_t {
  kAtNode,       // One node is too small, and the network between nodes is not known.
  kAtBatch,      // More devices cannot share the batch.
  kAtMostTried,  // The largest number that the search tries was reached.
};

// The answer of `fit`.
struct Fitted {
  std::vector<Table> tables = {};
  std::vector<Remedy> plans = {};  // The plans, the best one first.
  std::optional<Link> link = {};   // The link between the devices of a plan.
  std::int64_t batch = 0;          // The batch that these devices share; 0: the batch as asked.
  std::int64_t gpus = 0;           // The number of devices of the plans.
  std::optional<Stopped> stopped = {};
};

// The grid as `fit` plans it. It is placed on the device whose times are known; if several devices
// are planned and none is named, on a GPU. Fields that were not given get a plan's defaults, and
// `assumed` lists them. Sets `devices.is_batch_assumed`. Throws Error{kUsage} about a field that
// does not go with another one, with what `grid` was given, or with the search for the largest
// batch, context or model; `largest` names that search, or is empty.
RunGrid planned_grid(const RunGrid& grid, const TimeOptions& times, std::string_view largest,
                     DevicesQuestion& devices, std::vector<const RunField*>& assumed);
// Returns the predictor of times, with the link between the devices that share the step; nullopt if
// `source` has no times. Throws Error{kUsage} about a bandwidth of the link that is not known.
std::optional<Predictor> predictor_of(const TimeSource& source, const RunSpec& run,
                                      const DevicesQuestion& devices);
// The link between this many devices, as given or by the data sheet. Throws Error{kUsage} about
// link_gb_s or network_gb_s if it is not known.
Link link_of(const DevicesQuestion& devices, std::int64_t ranks);
// The training of the question on this many devices.
Training training_of(const DevicesQuestion& devices, int count);

// The functions below throw Error{kUsage} about the field that would have to change.

// Plans for this many devices, or for the fewest that fit; if none fits, the answer has the least
// memory that would be enough. More devices never give a worse plan: a batch that they cannot share
// is raised to the next one that they can.
Fitted fit_on_devices(const FitQuestion& asked, const DevicesQuestion& devices);
// The largest batch or context that fits on this many devices.
Fitted largest_on_devices(const FitQuestion& asked, Growth growth, const DevicesQuestion& devices);
// The largest model that fits, of those that are known by name.
Fitted largest_model(const FitQuestion& asked, const DevicesQuestion& devices);

}  // namespace tracestep
