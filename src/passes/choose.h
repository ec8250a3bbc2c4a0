// Puts the form of an op that somebody asked for in its place.
#pragma once

#include <map>
#include <string>

#include "ir/program.h"

namespace tracestep {

// `forms`: by the name of an op, the name of one of its OpDef::forms. Error{kUsage} for a form that
// the op does not have.
Program choose(const Program& program, const std::map<std::string, std::string>& forms);

}  // namespace tracestep
