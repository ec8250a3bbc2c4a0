// Plans a step for several devices: how they share it, the fewest that do, and the largest batch,
// context or model on so many.
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

inline constexpr const char* kLargestModel = "model";  // the word beside those of Growth

// The devices, and the training that they are for.
struct DevicesQuestion {
  std::int64_t gpus = 0, nodes = 0;            // 0: not given
  double link_gb_s = 0, network_gb_s = 0;      // of each device; 0: not given
  std::int64_t tokens = 0;                     // to train on; 0: not given
  double days = 0, cost_per_hour = 0;          // 0: not given
  bool is_smallest = false;                    // the fewest devices that do
  bool is_batch_assumed = false;               // and follows from the number of devices
  const PublishedDevice* published = nullptr;  // nullptr: no data sheet says how it is linked

  bool has_devices() const { return gpus > 0 || is_smallest; }
};

// Why a search for the fewest devices ended before it found enough.
enum class Stopped : std::uint8_t {
  kAtNode,       // one node is too few, and the network between nodes is not known
  kAtBatch,      // more cannot share the batch
  kAtMostTried,  // more were not tried
};

// The answer of `fit`.
struct Fitted {
  std::vector<Table> tables = {};
  std::vector<Remedy> plans = {};  // the best first
  std::optional<Link> link = {};   // between the devices of a plan
  std::int64_t batch = 0;          // shared by these devices; 0: as asked
  std::int64_t gpus = 0;           // devices of the plans
  std::optional<Stopped> stopped = {};
};

// `grid` as it is planned: on the device that times are of, or on a GPU, where devices are to be
// planned and none is named, with the defaults of a plan, of which `assumed` lists the fields. Sets
// `devices.is_batch_assumed`. Error{kUsage} about the field that does not go with the others, with
// what `grid` was given, or with the search for the largest batch, context or model; `largest`: its
// word, or empty.
RunGrid planned_grid(const RunGrid& grid, const TimeOptions& times, std::string_view largest,
                     DevicesQuestion& devices, std::vector<const RunField*>& assumed);
// The predictor of times, with the link between the devices that share the step; nullopt: nothing
// predicts them. Error{kUsage} about the field of a link that is not known.
std::optional<Predictor> predictor_of(const TimeSource& source, const RunSpec& run,
                                      const DevicesQuestion& devices);
// The link between so many devices, as given, or that of the data sheet. Error{kUsage} about
// link_gb_s or network_gb_s where it is not known.
Link link_of(const DevicesQuestion& devices, std::int64_t ranks);
// The training on so many of them.
Training training_of(const DevicesQuestion& devices, int count);

// In the functions below, errors are kUsage about the field that would have to be another.

// Plans for so many devices, or for the fewest that fit; if none does, the least memory that would
// do. The search takes more devices never to do worse: a batch that they cannot share is raised to
// the next one that they can.
Fitted fit_on_devices(const FitQuestion& asked, const DevicesQuestion& devices);
// The largest batch or context on so many devices.
Fitted largest_on_devices(const FitQuestion& asked, Growth growth, const DevicesQuestion& devices);
// The largest model that fits, of those that are known by name.
Fitted largest_model(const FitQuestion& asked, const DevicesQuestion& devices);

}  // namespace tracestep
