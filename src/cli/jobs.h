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

// The tasks of a job array: the command line, and for each task the cells that it measures
// ("step:3,4"). If there are no cells, a single task runs the whole command.
struct JobTasks {
  Request command;
  std::vector<std::string> cells;

  bool is_whole() const { return cells.size() == 1 && cells[0].empty(); }
  Words words_of(std::size_t task) const;
};

// Writes tasks.json into the folder of a job array. Beside it, task N writes what it has measured
// to cells/N.json, and creates cells/N.done when that file is complete.
void write_tasks(const std::filesystem::path& folder, const JobTasks& tasks);
// Reads tasks.json. Throws Error{kInput} if the folder has none or it is damaged.
JobTasks read_tasks(const std::filesystem::path& folder);
std::filesystem::path result_path(const std::filesystem::path& folder, std::size_t task);
bool is_done(const std::filesystem::path& folder, std::size_t task);
// Reads the rows of a task that is done. Error{kInput} for a damaged file.
JobRows rows_of_task(const std::filesystem::path& folder, const JobTasks& tasks, std::size_t task);

// Adds the option `--sbatch DIR` to a command that has a plan: instead of running, the command
// writes job scripts for Slurm. Its cells become an array of tasks, and a last job makes the result
// from their rows (docs/slurm.md).
void add_sbatch(Command& command);

}  // namespace tracestep::cli
