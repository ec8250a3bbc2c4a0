// Runs commands as jobs of a cluster (docs/slurm.md).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/cells.h"
#include "cli/command.h"
#include "cli/request.h"

namespace tracestep::cli {

// The tasks of a job array: a command line, and the cells that each measures ("step:3,4"); empty
// cells: an only task that does all.
struct JobTasks {
  Request command;
  std::vector<std::string> cells;

  bool is_whole() const { return cells.size() == 1 && cells[0].empty(); }
  Words words_of(std::size_t task) const;
};

// tasks.json in the folder of a job array, beside cells/N.json, what task N has measured, and
// cells/N.done, which is there once that is whole.
void write_tasks(const std::filesystem::path& folder, const JobTasks& tasks);
// Error{kInput} when the folder has none, or it is damaged.
JobTasks read_tasks(const std::filesystem::path& folder);
std::filesystem::path result_path(const std::filesystem::path& folder, std::size_t task);
bool is_done(const std::filesystem::path& folder, std::size_t task);
// Reads the rows of a task that is done. Error{kInput} for a damaged file.
JobRows rows_of_task(const std::filesystem::path& folder, const JobTasks& tasks, std::size_t task);

// `--sbatch DIR`, an option of every command that measures: instead of running, the command writes
// job scripts for Slurm. Its cells become an array of tasks; a last job makes the result of them
// (docs/slurm.md). Adds the option to a command that has a plan.
void add_sbatch(Command& command);

}  // namespace tracestep::cli
