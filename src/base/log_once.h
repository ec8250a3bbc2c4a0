// Log lines that several parts of a command would write, of which a user should see one.
#pragma once

#include <string>

namespace tracestep {

// Logs `line` as log_info() does, but only the first time in this process.
void log_once(const std::string& line);

}  // namespace tracestep
