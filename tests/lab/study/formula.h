// Evaluates the formulas of answers (src/lab/report/quantity.h says the language), from the tables
// alone: written again from that description, and shares no code with the answers.
#pragma once

#include <optional>
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
  // How many factors of a hundred stand between it and a plain ratio: 1 is percent. A number of the
  // formula's own may be either.
  int hundreds = 0;
  bool is_literal = false;

  bool is_percent() const { return is_literal || hundreds == 1; }
  bool is_plain() const { return is_literal || hundreds == 0; }
};

// A part of a relation: "a < b", "a = b", "a ~ b", "a > b" or "a in [low, high]".
struct EvaluatedRelation {
  std::string symbol;  // "<", "=", "~", ">", "in"
  bool holds = false;
  double low = 0, high = 0;  // of what is on the right
  Unit unit = Unit::kNone;
  bool has_noise = false;  // either side comes with its interval
  std::string left = {}, right = {};
};

// A row that a formula names.
struct NamedRow {
  const Table* table;
  std::size_t row;  // counted from 0
};

// These throw std::runtime_error when the formula is malformed, names no cell, or adds unlike
// units.
Evaluated evaluate(std::string_view formula, std::span<const Table> tables);
std::vector<EvaluatedRelation> evaluate_relation(std::string_view formula,
                                                 std::span<const Table> tables);
// The cell that a formula names by itself: "cells[3].size".
const Json& cell_named(std::string_view formula, std::span<const Table> tables);
// Every row that an expression, a relation or a reference to cells names.
std::vector<NamedRow> rows_named(std::string_view formula, std::span<const Table> tables);
// Both parts of "(a / b)"; empty for any other formula.
struct RatioRows {
  std::vector<NamedRow> above, below;
};
std::optional<RatioRows> ratio_rows(std::string_view formula, std::span<const Table> tables);

}  // namespace tracestep::testing
