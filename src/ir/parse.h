// Reads the text form of ir/print.h back into a program.
#pragma once

#include <string>
#include <string_view>

#include "ir/program.h"

namespace tracestep {

// Throws Error{kInput} with `where:line:column`; types written in the text must be the inferred
// ones. `where` names the source in messages.
Program parse_program(std::string_view text, const std::string& where = "program");

}  // namespace tracestep
