// Names of unfinished files and folders, and the lock by which other processes see that the writing
// process is alive. remove_stale_temporaries() of output_file.h removes those of processes that
// have ended.
#pragma once

#include <string>

#include "base/directory.h"

namespace tracestep {

// Returns a random name: ".tracestep-", 16 hexadecimal digits, ".tmp". It does not use the process
// id, because in containers many programs have id 1.
std::string temporary_name();

// Marks a new temporary file or folder as in use, as long as `handle` is open. False when another
// process has locked it to remove it as stale.
bool hold(int handle);

}  // namespace tracestep
