#include "cli/jobs.h"

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include <fmt/ranges.h>

#include "backends/comm/launch/launched.h"
#include "backends/comm/tcp/secret.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/output_folder.h"
#include "base/shell_words.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/arguments.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/remaining_time.h"
#include "embedded/job_scripts.h"
#include "lab/predict/prediction_files.h"
#include "lab/predict/time_source.h"

namespace tracestep::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFlag = "--sbatch";
// The most tasks in an array: Slurm's default for MaxArraySize allows these, with indices below it.
constexpr std::size_t kMostTasks = 1000;
// How long before its limit of time a training is asked to save; Slurm may be a minute early.
constexpr int kSecondsToSave = 120;

struct SbatchOptions {
  fs::path folder;
  TimeOptions times;
  bool has_own_times = false;  // the command has these flags too, and predicts by them
};

// A task of the job array with what it needs.
struct Task {
  std::size_t index = 0;  // in the array
  std::vector<PlannedCell> cells = {};
  int processes = 1;
  JobNeeds needs = {};
};

// Job scripts are made from this: the command, its tasks, and where their results go.
struct Jobs {
  const Command& command;
  JobTasks lines;
  Words for_merge = {};                    // flags of the command that go to the merge
  std::optional<std::string> output = {};  // likewise
  std::string format = "json";
  std::vector<Task> tasks = {};
  std::string source = {};  // of the predicted times, or why there are none
  fs::path program = {}, folder_of_command = {};
  bool has_checkpoints = false;  // true if a signal asks it to save them

  // True if tasks write results to be merged; a study writes its own files.
  bool has_result() const { return command.options.find("--output") != nullptr; }
};

std::string command_text(const Jobs& jobs) {
  return "tracestep " + shell_quoted(jobs.lines.command.words());
}

// Refuses options that an undivided command may have and its tasks must not.
void check_flags(const Command& command, const Request& request) {
  const Option* resume = command.options.find("--resume");
  if (resume != nullptr && resume->max_values > 0 && request.has("--resume")) {
    throw Error(ErrorCode::kUsage, "--resume", "tasks cannot share a file",
                "leave it out: a task that is done does not run again");
  }
  if (request.has("--overwrite") && request.has("--checkpoint")) {
    throw Error(ErrorCode::kUsage, "--overwrite",
                "a job that is started again would remove its own checkpoints",
                "name a new folder by --checkpoint, or remove the old one");
  }
}

// Drops the flags of predicted times from the request of a command that measures. If they name a
// card, the request gets the device on which such a card runs.
void settle_times(const Command& command, const SbatchOptions& o, Request& request) {
  const bool predicts = o.has_own_times && !command.plan(request.words()).front().needs.has_time;
  if (predicts) return;
  for (const char* flag : {"--published", "--calibration"}) request.drop(flag);
  const bool names_device = o.times.published.empty() || request.has("--device") ||
                            command.options.find("--device") == nullptr;
  if (names_device) return;
  request.set("--device", "cuda");
  parse_arguments(all_commands(), Words{command.name, "--device", "cuda"});
}

Jobs jobs_of(const Command& command, const SbatchOptions& o, Request request) {
  check_flags(command, request);
  request.drop(kFlag);
  settle_times(command, o, request);
  Jobs out{.command = command, .lines = {request, {}}};
  if (out.has_result()) {
    out.format = request.value("--format").value_or(out.format);
    out.output = request.value("--output");
    for (const char* flag : {"--columns", "--overwrite"}) {
      if (!request.has(flag)) continue;
      const auto value = request.value(flag);
      const Words words = words_of_part({flag, value ? Words{*value} : Words{}});
      out.for_merge.insert(out.for_merge.end(), words.begin(), words.end());
    }
    for (const char* flag : {"--format", "--output", "--columns"}) request.drop(flag);
  }
  std::error_code error;
  out.program = fs::read_symlink("/proc/self/exe", error);
  out.folder_of_command = fs::current_path(error);
  if (error) {
    throw Error(
        ErrorCode::kInput, kFlag,
        fmt::format("the folder that the jobs would start in has no name: {}", error.message()),
        "go to one that is there");
  }
  // A training goes on from its checkpoints when its job is started again.
  const Option* resume = command.options.find("--resume");
  out.has_checkpoints = resume != nullptr && resume->max_values == 0 && request.has("--checkpoint");
  if (out.has_checkpoints && !request.has("--resume")) request.add("--resume");
  out.lines = {request, {}};
  return out;
}

TimeOptions times_of(const Request& request) {
  return {.published = request.value("--published").value_or(""),
          .calibration = request.value("--calibration").value_or(""),
          .advice = kTimesAdvice};
}

TimeSource without_times(std::string note) {
  TimeSource out;
  out.note = std::move(note);
  return out;
}

// Refuses times of another kind of device: jobs on a CPU would else request the time that a GPU
// needs, or the reverse.
void check_kind(const char* flag, DeviceKind kind, const Place& place) {
  if (kind == traits_of(place).kind) return;
  throw Error(ErrorCode::kUsage, flag,
              fmt::format("its times are not those of the device {}", place.device),
              "name what the jobs run on by --device");
}

// Returns the source of predicted times; a calibration that is named may be of the nodes' device.
TimeSource times_of(const SbatchOptions& o, const JobPlan& plan, const Words& command) {
  if (!plan.has_time) return without_times("no times: nothing predicts those of this command");
  if (plan.runs.empty()) return without_times("times: as given");
  const RunSpec& run = plan.runs.front();
  if (o.times.published.empty() && !o.times.calibration.empty()) {
    KnownDevice known =
        read_known_device(prediction_files(run, o.times.calibration), Json::object());
    check_kind("--calibration", known.calibration.kind, plan.place);
    return {.model = std::move(known.model),
            .history = std::move(known.history),
            .note = fmt::format("times: calibrated {}", known.calibration.date_utc)};
  }
  if (!o.times.published.empty()) check_kind("--published", DeviceKind::kCuda, plan.place);
  try {
    return time_source(run, o.times, environment_of(command, run));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInput) throw;
    return without_times(fmt::format("no times: {}", error.what()));
  }
}

// Names cells for --cell, "step:3,4;attention:0": the numbers of one stage stand together.
std::string names_of(std::span<const PlannedCell> cells) {
  std::string out, last;
  for (const PlannedCell& cell : cells) {
    const std::size_t colon = cell.cell.rfind(':');
    if (colon == std::string::npos) return "";
    const std::string stage = cell.cell.substr(0, colon);
    const bool is_same = !out.empty() && stage == last;
    out += is_same ? "," + cell.cell.substr(colon + 1) : (out.empty() ? "" : ";") + cell.cell;
    last = stage;
  }
  return out;
}

// Divides cells into tasks. Cells with equal values of Command::job_fields, which are compared with
// each other, are one task; if the command names no such fields, each cell is a task.
void divide_cells(const std::vector<PlannedCell>& cells, Jobs& jobs) {
  std::map<std::string, std::size_t> known;
  for (const PlannedCell& cell : cells) {
    std::string values = jobs.command.job_fields.empty() ? cell.cell : "";
    for (const std::string_view field : jobs.command.job_fields) {
      const Json* value = cell.key.is_object() ? cell.key.find(field) : nullptr;
      values += value == nullptr ? ";" : value->dump() + ";";
    }
    const auto [at, is_new] = known.try_emplace(values, jobs.tasks.size());
    if (is_new) jobs.tasks.push_back({.index = jobs.tasks.size()});
    Task& task = jobs.tasks[at->second];
    task.cells.push_back(cell);
    task.processes = std::max(task.processes, cell.needs.processes);
  }
  for (const Task& task : jobs.tasks) jobs.lines.cells.push_back(names_of(task.cells));
}

void plan_tasks(const SbatchOptions& o, Jobs& jobs) {
  const Words words = jobs.lines.command.words();
  divide_cells(jobs.command.plan(words), jobs);
  const TimeSource times = times_of(o, jobs.tasks.front().cells.front().needs, words);
  jobs.source = times.note;
  for (Task& task : jobs.tasks) {
    if (times.model) {
      const Predictor predictor = times.predictor();
      task.needs = needs_of(task.cells, &predictor);
    } else {
      task.needs = needs_of(task.cells, nullptr);
    }
    if (times.usable_bytes == 0 || task.needs.peak_bytes <= times.usable_bytes) continue;
    log_warn("task {} needs {}, and a program can use {} of {}", task.index,
             format_bytes(task.needs.peak_bytes), format_bytes(times.usable_bytes),
             times.device->name);
  }
}

// Says what is predicted: "peak 1.50 GiB, 3.0 s".
std::string predicted_text(const JobNeeds& needs) {
  std::string out = needs.peak_bytes > 0 ? "peak " + format_bytes(needs.peak_bytes) : "";
  if (needs.predicted_seconds <= 0) return out;
  return out + (out.empty() ? "" : ", ") + format_duration_ms(needs.predicted_seconds * 1e3);
}

using Values = std::map<std::string, std::string>;

// Returns a script of scripts/ with `values` in place of {{their names}}. Lines that name a value
// not given are left out; "{{?name}}" at the start of a line is only that condition.
std::string filled(std::string_view script, const Values& values) {
  std::string out;
  std::istringstream lines{std::string(script)};
  for (std::string line; std::getline(lines, line);) {
    bool is_there = true;
    for (std::size_t open = 0; (open = line.find("{{", open)) != std::string::npos;) {
      const std::size_t close = line.find("}}", open);
      const std::string name = line.substr(open + 2, close - open - 2);
      const bool asks = name.starts_with('?');
      const auto value = values.find(asks ? name.substr(1) : name);
      if (value == values.end()) {
        is_there = false;
        break;
      }
      line.replace(open, close + 2 - open, asks ? "" : value->second);
      open += asks ? 0 : value->second.size();
    }
    if (is_there) out += line + "\n";
  }
  return out;
}

// The command that a task's script runs: this program with the task's words, by srun if needed.
std::string run_line(const Jobs& jobs, const JobNeeds& needs, int processes) {
  std::string out = shell_quoted(jobs.program.string()) + " \"$@\"";
  if (processes > 1 || jobs.has_checkpoints) {
    // Slurm signals what srun started. On CPUs MPI carries the tensors of ranks, and Slurm starts
    // it through PMIx.
    const bool has_mpi = processes > 1 && needs.gpus == 0;
    out = fmt::format("srun --ntasks={} --cpus-per-task={} --mpi={} {}", processes, needs.cpus,
                      has_mpi ? "pmix" : "none", out);
  }
  if (!jobs.has_result()) return out;
  return out + (jobs.lines.is_whole() ? " --format json" : "") + " --output \"$result\"";
}

// The script of an array of tasks, all of which request the same.
std::string array_script(const Jobs& jobs, std::span<const Task> tasks) {
  constexpr std::int64_t kMiB = 1 << 20;
  JobNeeds needs;
  std::vector<std::size_t> indices;
  std::vector<std::string> cases;
  for (const Task& task : tasks) {
    needs = needs | task.needs;
    indices.push_back(task.index);
    const std::string predicted = predicted_text(task.needs);
    cases.push_back(fmt::format("{}) set -- {} ;;{}", task.index,
                                shell_quoted(jobs.lines.words_of(task.index)),
                                predicted.empty() ? "" : "  # " + predicted));
  }
  const int processes = tasks.front().processes;
  Values values = {{"what", escaped(fmt::format("{} of {} tasks of: {}", tasks.size(),
                                                jobs.tasks.size(), command_text(jobs)))},
                   {"predicted", predicted_text(needs)},
                   {"source", escaped(jobs.source)},
                   {"margins", margins_text()},
                   {"command", jobs.command.name},
                   {"last", std::to_string(tasks.size() - 1)},
                   {"processes", std::to_string(processes)},
                   {"cpus", std::to_string(needs.cpus)},
                   // Slurm limits the index in an array, so that each of them begins at 0.
                   {"indices", fmt::format("{}", fmt::join(indices, " "))},
                   {"folder", shell_quoted(jobs.folder_of_command.string())},
                   {"cases", fmt::format("{}", fmt::join(cases, "\n"))},
                   {"run", run_line(jobs, needs, processes)}};
  const auto set_if = [&](bool condition, const char* name, auto value) {
    if (condition) values[name] = fmt::format("{}", value);
  };
  set_if(needs.gpus > 0, "gpus", needs.gpus * processes);
  set_if(needs.memory_bytes > 0, "mebibytes", (needs.memory_bytes * processes - 1) / kMiB + 1);
  set_if(needs.minutes > 0, "minutes", needs.minutes);
  set_if(jobs.has_checkpoints, "seconds_to_save", kSecondsToSave);
  // The ranks of a run divide these threads among them.
  set_if(needs.gpus == 0, "threads", needs.cpus * processes);
  // True for ranks that MPI does not connect.
  const bool has_plain_ranks = processes > 1 && needs.gpus > 0;
  set_if(has_plain_ranks, "secret", env::kCommSecretFile.name);
  set_if(has_plain_ranks, "make_secret",
         line_that_makes_secret(fmt::format("\"${}\"", env::kCommSecretFile.name)));
  set_if(processes > 1 && !has_plain_ranks, "over_memory", "");
  set_if(jobs.has_result(), "result", "");
  return filled(job_scripts::kTasksSh, values);
}

// Groups tasks with equal numbers of processes into arrays no larger than Slurm takes.
std::vector<std::vector<Task>> arrays_of(const Jobs& jobs) {
  std::map<int, std::vector<Task>> by_processes;
  for (const Task& task : jobs.tasks) by_processes[task.processes].push_back(task);
  std::vector<std::vector<Task>> out;
  for (const auto& [processes, tasks] : by_processes) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (i % kMostTasks == 0) out.emplace_back();
      out.back().push_back(tasks[i]);
    }
  }
  return out;
}

std::string merge_script(const Jobs& jobs) {
  std::string merge = fmt::format("{} \"$folder\" --format {}",
                                  shell_quoted(Words{jobs.program.string(), "merge"}), jobs.format);
  if (!jobs.for_merge.empty()) merge += " " + shell_quoted(jobs.for_merge);
  merge += jobs.output ? " " + shell_quoted(words_of_part({"--output", {*jobs.output}}))
                       : fmt::format(" --output \"$folder/result.{}\"", jobs.format);
  return filled(job_scripts::kMergeSh, {{"command", escaped(command_text(jobs))},
                                        {"folder", shell_quoted(jobs.folder_of_command.string())},
                                        {"merge", merge}});
}

std::string submit_script(const std::vector<std::string>& arrays, bool has_merge) {
  std::vector<std::string> lines;
  std::string ids;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    lines.push_back(fmt::format("id{}=$(sbatch --parsable \"$@\" {}) || exit", i, arrays[i]));
    ids += fmt::format(":${{id{}%%;*}}", i);
  }
  Values values = {{"arrays", fmt::format("{}", fmt::join(lines, "\n"))}};
  if (has_merge) values["after"] = ids;
  return filled(job_scripts::kSubmitSh, values);
}

void write_script(const fs::path& path, const std::string& text) {
  write_file(path, text);
  fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add);
}

int write_jobs(const Command& command, const SbatchOptions& o,
               std::span<const std::string> arguments) {
  Jobs jobs = jobs_of(command, o, Request(arguments));
  plan_tasks(o, jobs);
  if (jobs.output) check_writable(*jobs.output, "output"_field);
  OutputFolder output(o.folder, kFlag);
  for (const char* name : {"cells", "log"}) output.folder().make_folder(name);
  const fs::path& folder = output.folder().path();
  write_tasks(folder, jobs.lines);
  std::vector<std::string> names;
  for (const std::vector<Task>& tasks : arrays_of(jobs)) {
    names.push_back(fmt::format("tasks-{}.sh", names.size() + 1));
    write_script(folder / names.back(), array_script(jobs, tasks));
  }
  if (jobs.has_result()) write_script(folder / "merge.sh", merge_script(jobs));
  write_script(folder / "submit.sh", submit_script(names, jobs.has_result()));
  output.commit();
  log_info("tasks: {}; {}; submit them by {}", jobs.tasks.size(), jobs.source,
           (o.folder / "submit.sh").string());
  return 0;
}

// Refuses flags of predicted times without --sbatch: the command runs here, and predicts nothing.
void check_alone(const SbatchOptions& o, const std::string& name) {
  const bool is_published = !o.times.published.empty();
  if (!is_published && o.times.calibration.empty()) return;
  if (is_published) published_source(o.times.published);  // a name that nobody knows comes first
  throw Error(ErrorCode::kUsage, is_published ? "--published" : "--calibration",
              fmt::format("{} runs here, and predicts what its jobs request alone", name),
              "add --sbatch DIR, or leave it out; fit, predict and memory --predict say what a "
              "step needs on such a device");
}

// Tells a person at a terminal that a command will take minutes, before it starts. Training has
// lines of its own, and a plan that reads all of its text.
void say_if_long(const Command& command, std::span<const std::string> arguments) {
  constexpr double kLong = 60;
  const std::string& name = command.name;
  if (name == "train" || !ProgressLine().is_shown()) return;
  const double seconds = rough_seconds(command.plan(arguments));
  if (seconds < kLong) return;
  log_info("{}: this may take {}, by a rough count; Ctrl-C keeps what is measured", name,
           words_of_remaining(seconds));
}

}  // namespace

void add_sbatch(Command& command) {
  const auto options = std::make_shared<SbatchOptions>();
  OptionSet& set = command.options;
  set.group("On a cluster");
  set.path(kFlag, "DIR", options->folder,
           "run nothing; write job scripts for Slurm into this new folder, with a task for each "
           "value of the lists that are given, and requests from what is predicted");
  options->has_own_times = set.find("--published") != nullptr;
  if (!options->has_own_times) add_time_options(set, options->times);
  // The command is looked up by its name: this one is moved to where all of them are.
  command.run = [options, name = command.name,
                 run = std::move(command.run)](std::span<const std::string> arguments) {
    const auto& all = all_commands();
    const Command& self = *std::ranges::find(all, name, &Command::name);
    if (options->has_own_times) options->times = times_of(Request(arguments));
    if (options->folder.empty()) {
      if (!options->has_own_times) check_alone(*options, name);
      say_if_long(self, arguments);
      return run(arguments);
    }
    return write_jobs(self, *options, arguments);
  };
}

}  // namespace tracestep::cli
