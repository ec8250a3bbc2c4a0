// Replaces ops by the form that the user chose (`--attention flash`).
#pragma once

#include <map>
#include <string>

#include "ir/program.h"

namespace tracestep {

// `forms`: from an op's name to the name of one of its OpDef::forms. Throws Error{kUsage} for a
// form that the op does not have.
Program choose(const Program& program, const std::map<std::string, std::string>& forms);

}  // namespace tracestep
