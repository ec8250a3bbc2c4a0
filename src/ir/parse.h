// Reads the text form of ir/print.h back into a program.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ir/op_def.h"

namespace tracestep {

// Limits on the text. A step of the largest preset stays far below both.
inline constexpr std::size_t kMaxProgramBytes = std::size_t{64} << 20, kMaxProgramLines = 50'000;

// Reads a program. Throws Error{kInput} for a text beyond the limits or, with `where:line:column`,
// at a mistake; types in the text must be the inferred ones. `where` names the source in messages.
Program parse_program(std::string_view text, const std::string& where = "program");

// An op with attributes as a line of the text has them, "sum{axes=[0]}", taken apart. Throws
// Error{kUsage} naming `where`.
struct OpText {
  const OpDef* op = nullptr;
  Attrs attrs;
};
OpText parse_call(std::string_view text, const About& where);

}  // namespace tracestep
