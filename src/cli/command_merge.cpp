// tracestep merge: one result from what the tasks of a job array have measured.
#include <memory>

#include "base/error.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/jobs.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/compare/merge.h"
#include "lab/compare/result_file.h"

namespace tracestep::cli {
namespace {

struct MergeOptions {
  std::string folder;
  OutputOptions output;
};

// Has the command make its result of these rows, and write it where `output` says.
void gather(const JobTasks& tasks, std::vector<JobRows> jobs, const OutputOptions& output) {
  const Words words = tasks.command.words();
  const Command* command = parse_arguments(all_commands(), words);
  OutputOptions& own = *command->options.output();
  own.format = output.format;
  own.path = output.path;
  own.is_format_given = output.is_format_given;
  if (!output.columns.empty()) own.columns = output.columns;
  if (!output.tables.empty()) own.tables = output.tables;
  own.is_all |= output.is_all;
  try {
    command->gather(words, std::move(jobs));
  } catch (const Error& error) {  // that a check objects, or memory ran out, is in the result
    log_warn("{}", error.what());
  }
}

// Writes the result of a command that was a single task, in the form that `output` asks for.
void write_whole(const std::filesystem::path& folder, const OutputOptions& output) {
  const std::filesystem::path path = result_path(folder, 0);
  const std::string name = path.filename().string();
  Document all = document_of(Json::parse(read_text_file(path, name, kMaxResultBytes), name), name);
  write_tables(output, all.schema, all.environment, std::move(all.tables));
}

int run_merge(const MergeOptions& o) {
  probe_output(o.output);
  const JobTasks tasks = read_tasks(o.folder);
  std::vector<JobRows> jobs;
  std::size_t done = 0;
  for (std::size_t i = 0; i < tasks.cells.size(); ++i) {
    if (!is_done(o.folder, i)) {
      log_warn("task {} has no result: tracestep {}", i, shell_quoted(tasks.words_of(i)));
      continue;
    }
    ++done;
    if (!tasks.is_whole()) jobs.push_back(rows_of_task(o.folder, tasks, i));
  }
  if (done > 0) {
    tasks.is_whole() ? write_whole(o.folder, o.output) : gather(tasks, std::move(jobs), o.output);
  }
  if (done == tasks.cells.size()) return 0;
  throw Error(
      ErrorCode::kFailed, "merge",
      fmt::format("{} of {} tasks have no result", tasks.cells.size() - done, tasks.cells.size()),
      "submit.sh in that folder runs them again, and only them");
}

}  // namespace

Command merge_command() {
  const auto options = std::make_shared<MergeOptions>();
  Command command{.name = "merge"};
  OptionSet& set = command.options;
  set.positional("DIR", options->folder, "the folder of --sbatch");
  add_output_options(set, options->output);
  command.run = [options](std::span<const std::string>) { return run_merge(*options); };
  return command;
}

}  // namespace tracestep::cli
