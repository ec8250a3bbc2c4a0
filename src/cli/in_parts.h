// Commands whose rows are of several cells, run part by part: each cell by itself, in this process
// or in new ones. Finished parts are kept in a file, so that a grid can go on where it was
// interrupted.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/request.h"

namespace tracestep::cli {

// Adds --processes and --resume to a command that is `divided` and writes tables.
void add_parts(Command& command);

// The JSON result of a command in a new process. Error{kFailed} naming `where` with the last
// message of a process that fails; running out of memory is a result.
Json result_in_new_process(Request request, const std::string& where);

}  // namespace tracestep::cli
