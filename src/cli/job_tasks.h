// The tasks of a job array: one command line divided into several, and the folder that keeps them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cli/flag_words.h"

namespace tracestep::cli {

struct JobTasks {
  Words command;  // all of it
  Words divided;  // flags of which every task has one value
  std::vector<Words> tasks;

  // The values of the divided flags in this task: "tiny 64 step"; empty where nothing is divided.
  std::string label(std::size_t task) const;
};

// A task for each combination of the values that the command line lists for these flags, the first
// of which varies slowest. Flags that are not there, or have one value, divide nothing.
JobTasks divide(Words command, std::span<const std::string> flags);

// tasks.json in the folder of a job array, beside cells/N.json, the result of task N, and
// cells/N.done, which is there once that is whole.
void write_tasks(const std::filesystem::path& folder, const JobTasks& tasks);
// Error{kInput} when the folder has none, or it is damaged.
JobTasks read_tasks(const std::filesystem::path& folder);
std::filesystem::path result_path(const std::filesystem::path& folder, std::size_t task);
bool is_done(const std::filesystem::path& folder, std::size_t task);

}  // namespace tracestep::cli
