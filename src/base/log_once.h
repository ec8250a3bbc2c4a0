// Lines that several parts of a command have to say, of which a user reads one.
#pragma once

#include <string>

namespace tracestep {

// As log_info(); nothing where this process has said the same line.
void log_once(const std::string& line);

}  // namespace tracestep
