// What `tracestep explain` tells: for each topic the formulas with worked numbers, and the traps.
// What it says stands in pages/; the numbers come from programs, from the number types and from a
// measured row, and none is typed in.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/explain/page.h"
#include "lab/measure/validity.h"
#include "lab/report/table.h"
#include "spec/step_program.h"

namespace tracestep {

struct ExplainInput {
  ModelConfig model = {};
  BatchShape shape = {};
  // A row of `bench`: read from a result, or measured when a topic asks for it.
  std::function<ResultRow()> row = {};
};

// What fills a page, and the tables that follow it.
struct Explanation {
  Values values = {};
  std::vector<Table> more = {};
};

struct Topic {
  std::string_view name;   // "warm-up"
  bool needs_row = false;  // its numbers are measured ones
  std::string_view page;
  void (*work)(const ExplainInput& input, Explanation& out);
};

// In the order of a course: time, memory, attention, numbers.
std::span<const Topic> topics();
// Error{kUsage} naming the nearest topic.
const Topic& topic_named(std::string_view name);
// Rows: topics; what is printed when none is asked for.
Table topic_table();

// The tables of the topic: formulas with numbers first, its traps as notes below them.
std::vector<Table> explain(const Topic& topic, const ExplainInput& input);

}  // namespace tracestep
