#include "spec/planned.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "planning/device_traits.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

constexpr std::int64_t kLeastBatch = 4, kOfEach = 2;  // sequences, in all and of each device

// Returns "bf16" or "fp16", the first in which the device multiplies matrices, else "fp32".
std::string precision_for(const PlannedFor& planned) {
  for (const char* name : {"bf16", "fp16"}) {
    const bool has_it =
        !planned.multiplies_in || planned.multiplies_in(parse_precision("precision", name));
    if (has_it) return name;
  }
  return "fp32";
}

struct PlannedField {
  std::string_view name;
  std::string (*value)(const PlannedFor& planned);
};

// The fields to which plans for a GPU give a default, with that default for the devices of a plan.
constexpr PlannedField kPlanned[] = {
    {"precision", precision_for},
    {"attention", [](const PlannedFor&) -> std::string { return "flash"; }},
    {"executor", [](const PlannedFor&) -> std::string { return "compiled"; }},
    {"batch", [](const PlannedFor& p) { return std::to_string(planned_batch(p.devices)); }},
    {"context", [](const PlannedFor&) -> std::string { return "2048"; }}};

bool is_for_gpu(const RunGrid& grid) {
  const std::string device = grid.texts(field_named("device")).front();
  return traits_named(device).has_own_memory();
}

}  // namespace

bool is_planned(const RunField& field) {
  return std::ranges::find(kPlanned, field.name, &PlannedField::name) != std::end(kPlanned);
}

std::int64_t planned_batch(std::int64_t devices) {
  return std::max(kLeastBatch, kOfEach * devices);
}

std::vector<const RunField*> assume_planned(RunGrid& grid, const PlannedFor& planned) {
  std::vector<const RunField*> out;
  if (!is_for_gpu(grid)) return out;
  for (const PlannedField& row : kPlanned) {
    if (grid.is_given(row.name)) continue;
    const RunField& field = field_named(row.name);
    field.parse(field.where(), row.value(planned))(grid.base);
    out.push_back(&field);
  }
  return out;
}

std::string flags_of(std::span<const RunField* const> fields, std::span<const RunSpec> runs) {
  std::vector<std::string> out;
  for (const RunField* field : fields) {
    std::vector<std::string> values;
    for (const RunSpec& run : runs) {
      std::string text = text_of(*field, run);
      if (std::ranges::find(values, text) == values.end()) values.push_back(std::move(text));
    }
    out.push_back(fmt::format("{} {}", field->flag, fmt::join(values, ",")));
  }
  return fmt::format("{}", fmt::join(out, " "));
}

void say_assumed(std::span<const RunField* const> fields, std::span<const RunSpec> runs,
                 Json& environment, std::vector<std::string>& notes) {
  if (fields.empty()) return;
  Json values = Json::object();
  for (const RunField* field : fields) values[field->name] = field->value(runs.front());
  environment["assumed"] = std::move(values);
  notes.push_back("assumed: " + flags_of(fields, runs));
}

}  // namespace tracestep
