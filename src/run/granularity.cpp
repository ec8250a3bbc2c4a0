#include "run/granularity.h"

namespace tracestep {

std::string name_of(Granularity granularity) {
  if (granularity == Granularity::kPrimitive) return "primitive";
  if (granularity == Granularity::kFused) return "fused";
  std::string out;
  for (Composite composite : kNamedComposites) {
    if (!granularity.keeps(composite)) continue;
    if (!out.empty()) out += "+";
    out += name_of(composite);
  }
  return out;
}

}  // namespace tracestep
