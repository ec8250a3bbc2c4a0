// Files and folders that are not finished: their names, and the lock by which others know that
// their process is there. remove_stale_temporaries() of output_file.h removes those of ended ones.
#pragma once

#include <string>

#include "base/directory.h"

namespace tracestep {

// ".tracestep-", 16 hexadecimal digits, ".tmp". Random rather than with the process id: in
// containers many programs have id 1.
std::string temporary_name();

// Marks a new temporary file or folder as in use, as long as `handle` is open. False when another
// process has locked it to remove it as stale.
bool hold(int handle);

}  // namespace tracestep
