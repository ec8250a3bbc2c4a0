// Runs commands as jobs of a cluster (docs/slurm.md).
#pragma once

#include <filesystem>
#include <string>

#include "cli/command.h"
#include "cli/request.h"

namespace tracestep::cli {

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
