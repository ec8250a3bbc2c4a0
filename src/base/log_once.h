// Log lines that several parts of a command would write, of which a user should see one.
#pragma once

#include <string>

namespace tracestep {

// As log_info(), but only the first time that this process logs this line.
void log_once(const std::string& line);

}  // namespace tracestep
