// Frozen weights in 4 bits (QLoRA).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "ir/program.h"

namespace tracestep {

// The names of the constants that hold a weight in 4 bits, behind its own.
inline constexpr std::string_view kNf4Codes = ".nf4", kNf4Magnitudes = ".nf4_magnitudes",
                                  kNf4Scales = ".nf4_scales", kNf4Offset = ".nf4_offset";

// Behind `narrow_frozen`: frozen matrices within the layers that products alone read, as their
// second operand, become the operands of widen_nf4 (ops/nf4.cpp), which stands in front of their
// first product. Matrices of other than whole blocks of 64 elements stay, and so do those of
// `kept`.
Program keep_nf4(const Program& program, const std::set<std::string>& kept);

}  // namespace tracestep
