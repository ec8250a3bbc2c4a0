#include "passes/granularity.h"

#include <algorithm>
#include <vector>

#include "base/suggest.h"

namespace tracestep {
namespace {

std::vector<std::string> composite_names() {
  std::vector<std::string> out;
  for (Composite composite : kNamedComposites) out.emplace_back(name_of(composite));
  return out;
}

}  // namespace

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

Granularity parse_granularity(const std::string& where, const std::string& text) {
  for (Granularity granularity : kAllGranularities) {
    if (text == name_of(granularity)) return granularity;
  }
  std::vector<std::string> known = composite_names();
  // A single word may be a misspelt "primitive" or "fused".
  if (text.find('+') == std::string::npos) {
    for (Granularity granularity : kAllGranularities) known.push_back(name_of(granularity));
  }
  Granularity out = Granularity::kPrimitive;
  for (const std::string& part : checked_parts(where, text, known)) {
    out = out.with(
        *std::ranges::find(kNamedComposites, part, [](Composite c) { return name_of(c); }));
  }
  return out;
}

}  // namespace tracestep
