// The tasks of a job array: one command line divided into several, and the folder that keeps them.
#pragma once

#include <filesystem>

#include "cli/request.h"

namespace tracestep::cli {

struct JobTasks {
  Request command;    // all of it
  Division division;  // a part is a task
};

// tasks.json in the folder of a job array, beside cells/N.json, the result of task N, and
// cells/N.done, which is there once that is whole.
void write_tasks(const std::filesystem::path& folder, const JobTasks& tasks);
// Error{kInput} when the folder has none, or it is damaged.
JobTasks read_tasks(const std::filesystem::path& folder);
std::filesystem::path result_path(const std::filesystem::path& folder, std::size_t task);
bool is_done(const std::filesystem::path& folder, std::size_t task);

}  // namespace tracestep::cli
