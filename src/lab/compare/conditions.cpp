#include "lab/compare/conditions.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/compare/rows.h"
#include "lab/report/known_columns.h"

namespace tracestep {
namespace {

// True for facts that differ in every pair of runs and do not describe the machine.
bool is_of_the_run(std::string_view item) {
  return item == "date_utc" || item == "command_line";
}

// The higher of the values that a fact had before and after the row's steps; nullopt: none known.
std::optional<double> highest(const ResultRow& row, std::string_view fact) {
  std::optional<double> out;
  for (std::string_view when : {"host_before", "host_after"}) {
    const Json* facts = row.find(when);
    const Json* value = facts != nullptr && facts->is_object() ? facts->find(fact) : nullptr;
    if (value == nullptr || !value->is_number()) continue;
    out = std::max(out.value_or(value->as_double()), value->as_double());
  }
  return out;
}

std::string governor_of(const ResultRow& row) {
  const Json* facts = row.find("host_before");
  return facts == nullptr ? std::string() : text_at(*facts, "governor");
}

}  // namespace

std::string different_conditions(const ResultRow& a, const ResultRow& b) {
  constexpr double kLoad = 1.0, kOtherCores = 0.1, kClockRatio = 1.03;
  std::vector<std::string> out;
  const auto load_a = highest(a, "load_1min"), load_b = highest(b, "load_1min");
  if (load_a && load_b && std::abs(*load_a - *load_b) >= kLoad) {
    out.push_back(fmt::format("load {:.1f} and {:.1f}", *load_a, *load_b));
  }
  const auto others_a = a.others_cores(), others_b = b.others_cores();
  if (others_a && others_b && std::abs(*others_a - *others_b) >= kOtherCores) {
    out.push_back(fmt::format("other work on {:.2f} and {:.2f} cores", *others_a, *others_b));
  }
  const auto clock_a = highest(a, "clock_high_mhz"), clock_b = highest(b, "clock_high_mhz");
  if (clock_a && clock_b &&
      std::max(*clock_a, *clock_b) > kClockRatio * std::min(*clock_a, *clock_b)) {
    out.push_back(fmt::format("clocks up to {:.0f} and {:.0f} MHz", *clock_a, *clock_b));
  }
  const std::string governor_a = governor_of(a), governor_b = governor_of(b);
  if (governor_a != governor_b && !governor_a.empty() && !governor_b.empty()) {
    out.push_back(fmt::format("governor {} and {}", governor_a, governor_b));
  }
  return fmt::format("{}", fmt::join(out, "; "));
}

Table environment_table(const ResultFile& a, const ResultFile& b) {
  Table table{.name = "environment",
              .title = "What differs between the machines and builds",
              .columns = {col::item, col::a, col::b}};
  for (const ResultFile* file : {&a, &b}) {
    for (const auto& [item, value] : file->environment.members()) {
      const Json *left = a.environment.find(item), *right = b.environment.find(item), missing;
      if (left == nullptr) left = &missing;
      if (right == nullptr) right = &missing;
      const bool is_known = file == &b && left != &missing;
      if (is_known || is_of_the_run(item) || *left == *right) continue;
      table.add_row({item, words(*left), words(*right)});
    }
  }
  if (table.rows.empty()) table.notes.push_back("nothing: machine and build are the same");
  return table;
}

}  // namespace tracestep
