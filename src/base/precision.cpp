#include "base/precision.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"

namespace tracestep {
namespace {

struct Named {
  std::string_view name;
  Precision precision;
};

constexpr Named kNamed[] = {
    {"fp32", {DType::kF32}},
    {"tf32", {DType::kF32, std::nullopt, true}},
    {"fp32-split", {.parameters = DType::kF32, .split = true}},
    {"bf16", {DType::kF32, DType::kBF16}},
    {"fp16", {DType::kF32, DType::kF16}},
    {"fp8", {.parameters = DType::kF32, .autocast = DType::kBF16, .float8 = true}},
    {"bf16-pure", {DType::kBF16}},
    {"fp16-pure", {DType::kF16}}};

}  // namespace

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Named& n : kNamed) out.emplace_back(n.name);
    return out;
  }();
  return names;
}

Precision parse_precision(std::string_view where, std::string_view name) {
  for (const Named& n : kNamed) {
    if (n.name == name) return n.precision;
  }
  const auto close = closest(name, precision_names());
  throw Error(ErrorCode::kUsage, std::string(where),
              fmt::format("there is no precision '{}'", name),
              close ? fmt::format("did you mean '{}'?", *close)
                    : fmt::format("one of {}", fmt::join(precision_names(), ", ")));
}

std::string name_of(const Precision& precision) {
  for (const Named& n : kNamed) {
    if (n.precision == precision) return std::string(n.name);
  }
  const std::string parameters(name_of(precision.parameters));
  return precision.autocast ? fmt::format("{} over {}", name_of(*precision.autocast), parameters)
                            : parameters;
}

}  // namespace tracestep
