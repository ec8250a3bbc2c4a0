// The topics of `tracestep explain`: for each, formulas with worked numbers and common mistakes.
// The words are in pages/; all numbers are computed from programs, number types or a measured row.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/explain/values.h"
#include "lab/measure/validity.h"
#include "lab/report/table.h"
#include "spec/step_program.h"

namespace tracestep {

struct PublishedDevice;  // lab/predict/devices.h

// Parameters of the topics on many ranks.
struct RanksInput {
  int ranks = 8;
  // The device whose peak and link are used; nullptr: an H200.
  const PublishedDevice* device = nullptr;
  double tflops = 0, link_gb_s = 0;  // Measured rates in place of the device's; 0: the device's.
  double between_gb_s = 0;           // The bandwidth between hosts; 0: the same as within a host.
};

struct ExplainInput {
  ModelConfig model = {};
  BatchShape shape = {};
  // A row of `bench`: read from a result, or measured when a topic asks for it.
  std::function<ResultRow()> row = {};
  bool is_measured_now = false;  // True: the row is measured now; false: it was read from a file.
  RanksInput ranks = {};
};

// The values that fill a topic's page, and the tables that follow it.
struct Explanation {
  Values values = {};
  std::vector<Table> more = {};
};

struct Topic {
  std::string_view name;  // "warm-up"
  std::string_view page;
  // Sets the values that the page does not compute itself; nullptr: there are none.
  void (*work)(const ExplainInput& input, Explanation& out) = nullptr;
  bool reads_row = false;    // True: the topic reads the times of a row and not only sizes.
  bool reads_ranks = false;  // RanksInput
};

// All topics in teaching order: time, memory, attention, many ranks, number formats.
std::span<const Topic> topics();
// The topic with this name. Error{kUsage} naming the nearest topic when there is none.
const Topic& topic_named(std::string_view name);
// A table with a row for each topic, which is printed when none is asked for.
Table topic_table();

// The tables of a topic: first the formulas with numbers, with the common mistakes as notes below.
std::vector<Table> explain(const Topic& topic, const ExplainInput& input);

}  // namespace tracestep
