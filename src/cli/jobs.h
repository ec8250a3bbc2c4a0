// Runs commands in parts: cells in processes of their own, and jobs of a cluster (docs/slurm.md).
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/request.h"

namespace tracestep::cli {

// Commands whose rows are of several cells, run part by part: each cell by itself, in this process
// or in new ones. Finished parts are kept in a file, so that a grid can go on where it was
// interrupted. Adds --processes and --resume to a command that is `divided` and writes tables.
void add_parts(Command& command);

// The JSON result of a command in a new process. Error{kFailed} naming `where` with the last
// message of a process that fails; running out of memory is a result.
Json result_in_new_process(Request request, const std::string& where);

// The tasks of a job array: one command line divided into several, and the folder that keeps them.
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

// `--sbatch DIR`, an option of every command that measures: instead of running, the command writes
// job scripts for Slurm. A list on the command line becomes an array of tasks, one for each value;
// a last job puts their results together (docs/slurm.md). Adds the option to a command that has a
// plan.
void add_sbatch(Command& command);

}  // namespace tracestep::cli
