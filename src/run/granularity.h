// Which composites a program keeps whole, each as one op with a kernel of its own. The others run
// in parts, as plain framework code writes them: max, subtract, exp, sum, divide.
#pragma once

#include <cstdint>
#include <string>

#include "ir/op_def.h"

namespace tracestep {

class Granularity {
 public:
  static const Granularity kPrimitive;  // keeps none
  static const Granularity kFused;      // keeps all, those of users included

  constexpr Granularity with(Composite composite) const {
    return Granularity(kept_ | bit_of(composite));
  }
  // True if the program keeps ops of the composite whole; kOther only where all named ones are.
  constexpr bool keeps(Composite composite) const {
    const std::uint32_t needed = composite == Composite::kOther ? all_bits() : bit_of(composite);
    return (kept_ & needed) == needed;
  }
  constexpr bool operator==(const Granularity&) const = default;

 private:
  constexpr explicit Granularity(std::uint32_t kept) : kept_(kept) {}
  static constexpr std::uint32_t bit_of(Composite composite) {
    return composite == Composite::kOther ? 0 : 1u << static_cast<unsigned>(composite);
  }
  static constexpr std::uint32_t all_bits() {
    std::uint32_t out = 0;
    for (Composite composite : kNamedComposites) out |= bit_of(composite);
    return out;
  }

  std::uint32_t kept_;
};

inline constexpr Granularity Granularity::kPrimitive{0};
inline constexpr Granularity Granularity::kFused{all_bits()};

inline constexpr Granularity kAllGranularities[] = {Granularity::kPrimitive, Granularity::kFused};

// "primitive", "fused", or what is kept: "norm+softmax".
std::string name_of(Granularity granularity);

}  // namespace tracestep
