// Which composite ops a program keeps whole, each with its own kernel. The others run in primitive
// ops, as plain framework code would: max, subtract, exp, sum, divide.
#pragma once

#include <cstdint>
#include <string>

#include "ir/op_def.h"

namespace tracestep {

class Granularity {
 public:
  static const Granularity kPrimitive;  // keeps none
  static const Granularity kFused;      // Keeps all composites, including those of users.

  constexpr Granularity with(Composite composite) const {
    return Granularity(kept_ | bit_of(composite));
  }
  // True if the program keeps ops of this composite whole; for kOther, only if all named ones are
  // kept.
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

// Returns the granularity as text: "primitive", "fused", or the composites kept, as "norm+softmax".
std::string name_of(Granularity granularity);

}  // namespace tracestep
