// tracestep merge: one result from those of a job array.
#include <memory>

#include "base/error.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "cli/command.h"
#include "cli/jobs.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/compare/merge.h"
#include "lab/compare/result_file.h"
#include "lab/measure/environment.h"

namespace tracestep::cli {
namespace {

struct MergeOptions {
  std::string folder;
  OutputOptions output;
};

// The parts that are whole; stderr names the others.
std::vector<PartResult> read_parts(const std::filesystem::path& folder, const JobTasks& tasks) {
  std::vector<PartResult> out;
  for (std::size_t i = 0; i < tasks.division.parts.size(); ++i) {
    if (!is_done(folder, i)) {
      log_warn("task {} has no result: tracestep {}", i,
               shell_quoted(tasks.division.parts[i].words()));
      continue;
    }
    const std::filesystem::path path = result_path(folder, i);
    const std::string name = path.filename().string();
    out.push_back({name, tasks.division.label(i),
                   Json::parse(read_text_file(path, name, kMaxResultBytes), name)});
  }
  return out;
}

int run_merge(const MergeOptions& o) {
  probe_output(o.output);
  const JobTasks tasks = read_tasks(o.folder);
  const std::vector<PartResult> parts = read_parts(o.folder, tasks);
  const std::size_t missing = tasks.division.parts.size() - parts.size();
  if (!parts.empty()) {
    std::vector<std::string> divided;
    for (const std::string& flag : tasks.division.flags) divided.push_back(column_of_flag(flag));
    Document all = merged(parts, divided);
    all.environment["command_line"] =
        capture_environment(tasks.command.words(), 1).at("command_line");
    write_tables(o.output, all.schema, all.environment, std::move(all.tables));
  }
  if (missing == 0) return 0;
  throw Error(ErrorCode::kFailed, "merge",
              fmt::format("{} of {} tasks have no result", missing, tasks.division.parts.size()),
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
