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
  const PublishedDevice* device = nullptr;  // whose peak and link it takes; nullptr: an H200
  double tflops = 0, link_gb_s = 0;         // measured ones instead; 0: the device's
  double between_gb_s = 0;                  // of the link between hosts; 0: as inside
};

struct ExplainInput {
  ModelConfig model = {};
  BatchShape shape = {};
  // A row of `bench`: read from a result, or measured when a topic asks for it.
  std::function<ResultRow()> row = {};
  bool is_measured_now = false;  // true if the row is measured; else it is read from a file
  RanksInput ranks = {};
};

// The values that fill a page, and the tables after it.
struct Explanation {
  Values values = {};
  std::vector<Table> more = {};
};

struct Topic {
  std::string_view name;  // "warm-up"
  std::string_view page;
  // Sets what its page does not compute; null: nothing.
  void (*work)(const ExplainInput& input, Explanation& out) = nullptr;
  bool reads_row = false;    // not only sizes: the times of a row
  bool reads_ranks = false;  // RanksInput
};

// In teaching order: time, memory, attention, many ranks, number formats.
std::span<const Topic> topics();
// Error{kUsage} naming the nearest topic when there is no such topic.
const Topic& topic_named(std::string_view name);
// Rows: topics; what is printed when none is asked for.
Table topic_table();

// The tables of the topic: formulas with numbers first, its traps as notes below them.
std::vector<Table> explain(const Topic& topic, const ExplainInput& input);

}  // namespace tracestep
