// Evaluates the formulas of answers (src/lab/report/quantity.h says the language), from the tables
// alone: written again from that description, and shares no code with the answers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/table.h"

namespace tracestep::testing {

enum class Unit { kNone, kTime, kBytes };

struct Evaluated {
  double value = 0, low = 0, high = 0;
  Unit unit = Unit::kNone;
};

// A part of a relation: "a < b", "a = b", "a ~ b", "a > b" or "a in [low, high]".
struct EvaluatedRelation {
  std::string symbol;  // "<", "=", "~", ">", "in"
  bool holds = false;
  double low = 0, high = 0;  // of what is on the right
};

// These throw std::runtime_error when the formula is malformed, names no cell, or adds unlike
// units.
Evaluated evaluate(std::string_view formula, std::span<const Table> tables);
std::vector<EvaluatedRelation> evaluate_relation(std::string_view formula,
                                                 std::span<const Table> tables);
// The cell that a formula names by itself: "cells[3].size".
const Json& cell_named(std::string_view formula, std::span<const Table> tables);

}  // namespace tracestep::testing
