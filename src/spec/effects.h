// Fields of a run that have an effect in some runs alone (SpecField::applies), with the words of a
// refusal: why they have none, and what would give them one.
#pragma once

#include <span>
#include <string_view>

#include "run/run_spec.h"

namespace tracestep {

struct FieldEffect {
  std::string_view field;
  bool (*applies)(const RunSpec& run);
  const char *why, *needs;  // "nothing is updated", "option mode step"
};

std::span<const FieldEffect> field_effects();

}  // namespace tracestep
