// Reads the text form of ir/print.h back into a program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ir/program.h"

namespace tracestep {

// A step of the largest preset is a small part of either.
inline constexpr std::size_t kMaxProgramBytes = std::size_t{64} << 20, kMaxProgramLines = 50'000;

// Throws Error{kInput} for a text beyond these limits, and with `where:line:column`; types written
// in the text must be the inferred ones. `where` names the source in messages.
Program parse_program(std::string_view text, const std::string& where = "program");

}  // namespace tracestep
