#include "cli/cells.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "backends/null/null_device.h"
#include "base/log.h"
#include "base/random.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "cli/processes.h"
#include "cli/request.h"
#include "lab/compare/interleaved.h"
#include "lab/compare/merge.h"
#include "lab/measure/ceilings.h"
#include "lab/measure/environment.h"
#include "lab/pages/page.h"
#include "lab/report/known_columns.h"
#include "lab/report/writers.h"
#include "run/memory_limit.h"
#include "spec/step_program.h"

namespace tracestep::cli {
namespace {

const std::vector<std::string> kOfDriver = {"--resume", "--processes", "--cell"};
const std::vector<std::string> kOfOutput = {"--output", "--overwrite", "--columns", "--all",
                                            "--format", "--pictures",  "--tables"};

void drop(Request& request, std::span<const std::string> flags) {
  for (const std::string& flag : flags) request.drop(flag);
}

// Returns what all rows depend on, apart from their cells: the words of the request without those
// that list cells or concern the output, and what tells builds and machines apart.
Json dependencies(const Command& command, std::span<const std::string> arguments) {
  Request request(arguments);
  drop(request, kOfDriver);
  drop(request, kOfOutput);
  drop(request, std::vector<std::string>{"--rounds", "--repeat"});
  for (const Option& option : command.options.options()) {
    if (option.names_one_file || option.lists_cells) request.drop(option.flag);
  }
  Json words = Json::array();
  for (const std::string& word : request.sorted_words()) words.push_back(word);
  const Json environment = capture_environment(arguments, 1);
  Json out = Json::Object{{"words", std::move(words)}, {"tool", environment.at("tool")}};
  for (const char* item : {"cpu", "gpu", "tuning_file"}) {
    if (const Json* value = environment.find(item)) out[item] = *value;
  }
  return out;
}

void check_alone(const Command& command, const CellOptions& options, const Request& request) {
  const char* flag = options.resume.empty() ? "--processes" : "--resume";
  if (options.processes == 1 && options.resume.empty()) return;
  if (processes() != nullptr) {
    throw Error(ErrorCode::kUsage, flag, "several processes share this run", "leave it out");
  }
  if (!options.only.empty() && !options.resume.empty()) {
    throw Error(ErrorCode::kUsage, "--cell", "the process that asks for a cell keeps its rows",
                fmt::format("leave it out, or {}", flag));
  }
  for (const Option& option : command.options.options()) {
    if (!option.is_of_all_cells || !request.has(option.flag)) continue;
    throw Error(ErrorCode::kUsage, option.flag,
                fmt::format("it is of all cells together, and {} of single ones", flag),
                "leave one out");
  }
  if (options.resume.empty()) return;
  const NamedPath paths[] = {{"--resume", options.resume},
                             {"--output", request.value("--output").value_or("")}};
  check_apart({}, paths);
}

// The stage of the row in which a job says on what machine it ran.
constexpr const char* kMachine = "machine";

Json key_of_machine() {
  return Json::Object{{"stage", kMachine}};
}

// Returns the speed of a row in TFLOP/s; 0 for a row without one.
double tflops_of(const CellResult& result) {
  if (result.status != Status::kOk || !result.computes || result.wall_ms <= 0) return 0.0;
  return static_cast<double>(result.flops) / result.wall_ms * 1e-9;
}

}  // namespace

Cells::Cells(const Command& command, const CellOptions& options,
             std::span<const std::string> arguments)
    : command_(command),
      options_(options),
      arguments_(arguments.begin(), arguments.end()),
      file_(options.resume, options.is_used() ? dependencies(command, arguments) : Json::object()) {
}

Cells::Cells(const Command& command, const CellOptions& options,
             std::span<const std::string> arguments, ListsCells)
    : command_(command),
      options_(options),
      arguments_(arguments.begin(), arguments.end()),
      role_(Role::kLists),
      file_({}, Json::object()) {}

Cells::Cells(const Command& command, const CellOptions& options,
             std::span<const std::string> arguments, std::vector<JobRows> jobs)
    : command_(command),
      options_(options),
      arguments_(arguments.begin(), arguments.end()),
      role_(Role::kGathers),
      file_({}, Json::object()) {
  for (const JobRows& job : jobs) {
    jobs_.push_back({job.cells, {}});
    for (const RowsFile::Row& row : job.rows) {
      if (row.first == key_of_machine()) jobs_.back().environment = row.second;
      job_of_.emplace(row.first.dump(), jobs_.size() - 1);
    }
    file_.add(job.rows);
  }
}

DeviceFactory Cells::device_factory() const {
  if (use() == DeviceUse::kRun) return make_device;
  return [](const RunSpec& run) {
    return make_null_device(
        {.traits = traits_of(run.place), .memory_limit = limit_in_bytes(run.place)});
  };
}

Json Cells::environment_of(const RunSpec& run) {
  place_ = run.place;
  Json own = cli::environment_of(arguments_, run);
  if (jobs_.empty()) return own;
  Json out = jobs_.front().environment;
  out["command_line"] = own.at("command_line");
  return out;
}

std::vector<ResultRow> Cells::rows_of(const Table& table, const Json& environment) const {
  if (jobs_.size() < 2 || jobs_of_results_.size() != table.rows.size()) {
    return tracestep::rows_of(table, environment);
  }
  Table apart = table;
  apart.columns.push_back(col::table);
  for (std::size_t i = 0; i < apart.rows.size(); ++i) {
    apart.rows[i].emplace_back("of " + jobs_[jobs_of_results_[i]].cells);
  }
  return tracestep::rows_of(apart, environment);
}

std::vector<PlannedCell> Cells::planned() const {
  if (!listed_.empty()) return listed_;
  return {PlannedCell{.needs = whole_.value_or(JobPlan{.place = place_})}};
}

void Cells::list(const std::string& stage, std::size_t cell, Json key, JobPlan visit,
                 const RoundOptions& options) {
  visit.steps *= options.rounds * options_.processes;
  visit.seconds *= options.rounds * options_.processes;
  listed_.push_back({fmt::format("{}:{}", stage, cell), std::move(key), std::move(visit)});
}

const StopSignal& Cells::stop(std::string_view what) {
  if (!stop_) stop_.emplace(fmt::format("the {} measured so far are written", what));
  return *stop_;
}

// True if no cell may be begun. Ranks that are processes end together instead, amid a cell.
bool Cells::must_stop() const {
  return role_ != Role::kMeasures || (is_stopped() && processes() == nullptr);
}

Json Cells::key_of_row(const std::string& stage, Json key, std::optional<int> round) const {
  Json out = Driver::key_of_row(stage, std::move(key), round);
  if (has_processes()) out["process"] = static_cast<std::int64_t>(pass_);
  return out;
}

void Cells::keep(std::vector<RowsFile::Row> rows) {
  file_.add(rows);
  if (!is_child()) return;
  std::ranges::move(rows, std::back_inserter(new_rows_));
}

std::vector<std::size_t> Cells::chosen(const std::string& stage, std::size_t count) const {
  if (!is_child()) return Driver::chosen(stage, count);
  std::vector<std::size_t> out;
  std::string_view only = options_.only;
  if (only.ends_with(kOneVisit)) only.remove_suffix(kOneVisit.size());
  for (const std::string& cells : pages::split(only, ";")) {
    const std::size_t colon = cells.rfind(':');
    if (cells.substr(0, colon) != stage) continue;
    for (const std::string& number : split_list("--cell", cells.substr(colon + 1))) {
      const std::int64_t cell = parse_count("--cell", number, 0, 1 << 30);
      if (cell < static_cast<std::int64_t>(count)) out.push_back(static_cast<std::size_t>(cell));
    }
  }
  return out;
}

std::size_t Cells::known_of(Json key) const {
  if (!has_processes()) return row(key) != nullptr ? 1 : 0;
  std::size_t known = 0;
  for (std::size_t pass = 0; pass < passes(); ++pass) {
    key["process"] = static_cast<std::int64_t>(pass);
    if (row(key) != nullptr) ++known;
  }
  return known;
}

void Cells::begin_visits(std::span<const Json> keys, std::span<const double> missing) {
  view_.emplace(missing);
  if (options_.resume.empty() || file_.was_empty() || pass_ > 0) return;
  std::size_t known = 0;
  for (const Json& key : keys) known += known_of(key);
  log_info("[--resume] {}: {} of {} rows are there", options_.resume.string(), known,
           keys.size() * (has_processes() ? passes() : 1));
}

void Cells::begin_visit(double weight, const std::string& label, int round, int rounds) {
  if (!view_) return;
  view_->begin(weight, (has_processes() ? fmt::format("process {} of {}  ", pass_ + 1, passes())
                        : rounds > 1    ? fmt::format("round {} of {}  ", round + 1, rounds)
                                        : "") +
                           label);
}

std::vector<std::size_t> Cells::order_of(std::size_t count) const {
  std::vector<std::size_t> order = Driver::order_of(count);
  if (!has_processes()) return order;
  static const std::uint64_t seed = std::random_device()();
  const CounterRng lot(seed, "cells");
  std::uint64_t drawn = pass_ * count;
  for (std::size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[lot.below(drawn++, left)]);
  }
  return order;
}

bool Cells::measure_in_process(const std::string& stage, std::size_t cell, const Json& key) {
  if (is_stopped()) return false;
  Request request(arguments_);
  drop(request, kOfDriver);
  drop(request, kOfOutput);
  request.set("--cell", fmt::format("{}:{}{}", stage, cell, kOneVisit));
  const ProcessResult process = run_self(request.words());
  if (is_stopped()) return false;  // it was passed on
  if (process.status != 0) {
    throw Error(ErrorCode::kFailed, "--processes",
                fmt::format("a process of its own ended with status {}: {}", process.status,
                            last_line(process.err)));
  }
  std::vector<RowsFile::Row> rows;
  for (std::size_t begin = 0, end = 0; begin < process.out.size(); begin = end + 1) {
    end = process.out.find('\n', begin);
    rows.push_back(
        row_of_line(std::string_view(process.out).substr(begin, end - begin), "--processes"));
    for (const char* of_visit : {"round", "process"}) {
      if (const Json* value = key.find(of_visit)) rows.back().first[of_visit] = *value;
    }
  }
  // The cell itself comes last: where it is in the file, all that belongs to it is.
  std::ranges::reverse(rows);
  std::erase_if(rows, [](const RowsFile::Row& one) {
    return one.first.find("stage") != nullptr && one.first.at("stage") == Json(kMachine);
  });
  keep(std::move(rows));
  if (row(key) != nullptr) return true;
  throw Error(ErrorCode::kFailed, "--processes", "a process of its own measured another cell");
}

bool Cells::goes_on() {
  if (role_ == Role::kLists || has_ended_ || !has_cells_) return false;
  return ++pass_ < passes();
}

// Writes each table with the rows of all processes, and the tables that only `last` has.
void Cells::write_merged(const CellTables& last) {
  Document all = document_of(merged_result(documents_, "--processes"), command_.name);
  for (const Table& table : last.tables) {
    const bool is_there =
        std::ranges::find(all.tables, table.name, &Table::name) != all.tables.end();
    if (!is_there) all.tables.push_back(table);
  }
  write_tables(last.output, last.schema, std::move(all.environment), std::move(all.tables),
               last.drawn);
}

// Writes the rows of the cells that were asked for, and on what machine they were measured.
int Cells::finish_child(const CellTables& result) {
  const bool is_last = !has_processes() || pass_ + 1 == passes() || is_stopped();
  if (!is_last) return 0;
  has_ended_ = true;
  std::string lines;
  for (const RowsFile::Row& row : new_rows_) lines += line_of(row);
  if (lines.empty() && !is_stopped()) {
    fail_usage("--cell", "\"{}\" is no stage and number of a cell", options_.only);
  }
  if (!result.environment.is_null()) lines += line_of({key_of_machine(), result.environment});
  write_text(lines, result.output.path);
  return is_stopped() ? stop_->exit_status() : 0;
}

// Notes in the first table which jobs ran on another machine than the first one.
void Cells::note_jobs(CellTables& result) const {
  if (jobs_.empty() || result.tables.empty()) return;
  for (const Job& job : std::span(jobs_).subspan(1)) {
    const std::string other = other_machine(jobs_.front().environment, job.environment);
    if (other.empty()) continue;
    result.tables.front().notes.push_back(fmt::format("{} ran elsewhere: {}", job.cells, other));
  }
}

int Cells::finish(CellTables result) {
  if (role_ == Role::kLists) return 0;
  if (is_child()) return finish_child(result);
  note_jobs(result);
  const bool is_whole = role_ == Role::kGathers || (result.done >= result.wanted && !result.is_cut);
  const bool is_joined = has_processes() && has_cells_;
  if (is_joined && is_whole) {
    documents_.push_back(to_json({result.schema, result.environment, result.tables}));
    if (pass_ + 1 < passes()) return 0;
  }
  has_ended_ = true;
  if (is_joined && !documents_.empty()) {
    write_merged(result);
  } else if (!result.tables.empty()) {
    write_tables(result.output, std::move(result.schema), std::move(result.environment),
                 std::move(result.tables), std::move(result.drawn));
  }
  if (result.last_words && is_whole) throw *result.last_words;
  if (is_whole) return 0;
  const char* way_on = options_.resume.empty() ? "; with --resume FILE it can go on" : "";
  if (!documents_.empty()) {
    log_warn("stopped by a signal after {} of {} processes{}", documents_.size(), passes(), way_on);
  } else if (result.done == 0) {
    log_warn("stopped by a signal: nothing was measured yet");
  } else if (result.done == result.wanted) {
    log_warn("stopped by a signal, with something missing{}", way_on);
  } else {
    log_warn("stopped by a signal after {} of {} rows{}", result.done, result.wanted, way_on);
  }
  return stop_->exit_status();
}

void add_program(CellResult& result) {
  if (result.status != Status::kOk || !result.program.nodes.empty()) return;
  result.traits = traits_of(result.spec.step.place);
  result.program = step_program(result.spec.step, result.traits);
}

namespace {

int run_all(const Command& command, Cells& cells) {
  int status = 0;
  do {
    status = command.run_cells(cells);
  } while (cells.goes_on());
  return status;
}

}  // namespace

std::vector<CellResult> measure_steps(Cells& cells, const std::vector<RunSpec>& runs,
                                      const Protocol& protocol, RoundOptions options,
                                      const StepNeeds& needs) {
  const std::optional<double> roof = needs.roof;
  const StopSignal& stop = cells.stop();
  std::vector<CellSpec> specs;
  for (const RunSpec& run : runs) specs.push_back({run, protocol});
  if (options.seed == 0 && !runs.empty()) options.seed = runs[0].seed;
  bool has_roofs = roof.has_value();
  const auto plan_of = [&](const CellSpec& spec) {
    const Protocol& p = spec.protocol;
    const bool is_by_noise = p.max_noise_percent > 0;
    JobPlan out =
        plan_of_steps(spec.step, p.warmup + (is_by_noise ? 0 : p.steps) + p.recorded_steps +
                                     p.part_steps + needs.more_steps / options.rounds);
    out.seconds = (is_by_noise ? p.max_seconds : 0) + needs.more_seconds / options.rounds;
    return out;
  };
  const auto measure_one = [&](const CellSpec& spec, const StepObserver& observe) {
    if (!std::exchange(has_roofs, true)) {  // before the first row, not in the middle of one
      for (const RunSpec& run : cells.is_child() ? std::vector{spec.step} : runs) roof_tflops(run);
    }
    CellResult out = visit(make_device, spec, &stop, observe);
    if (options.rounds == 1 && !needs.program) {
      out.recorded.clear();
      out.spans.clear();
    }
    return out;
  };
  std::vector<CellResult> out =
      cells.measure<CellResult>(needs.stage, specs, options, plan_of, measure_one);
  for (CellResult& result : out) {
    const RunSpec& run = result.spec.step;
    const Roof of_device =
        roof ? Roof{.tflops = *roof, .others_cores = {}}
             : cells.besides<Roof>("roof", result.spec, [&] {
                 return Roof{roof_tflops_for(run, tflops_of(result)), roof_others_cores(run)};
               });
    result.roof_tflops = of_device.tflops;
    result.roof_others_cores = of_device.others_cores;
    if (needs.program) add_program(result);
  }
  return out;
}

void add_cells(Command& command) {
  const auto options = std::make_shared<CellOptions>();
  OptionSet& set = command.options;
  set.group("Cell by cell");
  set.integer(
      "--processes", options->processes, {1, 1000},
      "measure each cell in so many processes, all cells in turns: what a new process alone "
      "changes is then part of the noise (compare); with --rounds, so many in each round");
  set.path("--resume", "FILE", options->resume,
           "keep each cell here once it is measured, and go on with those that are missing (JSON "
           "lines)");
  set.text("--cell", "STAGE:N[,N]", options->only,
           "measure only these cells, counted from 0, and print their rows as --resume keeps them: "
           "what a process of --processes and a job of --sbatch do; N/1: one visit of it");
  // The command is looked up by its name: this one is moved to where all of them are.
  const auto self = [name = command.name]() -> const Command& {
    return *std::ranges::find(all_commands(), name, &Command::name);
  };
  command.plan = [options, self](std::span<const std::string> arguments) {
    Cells cells(self(), {.processes = options->processes}, arguments, ListsCells());
    self().run_cells(cells);
    return cells.planned();
  };
  command.run = [options, self](std::span<const std::string> arguments) {
    if (options->is_used()) check_alone(self(), *options, Request(arguments));
    Cells cells(self(), *options, arguments);
    return run_all(self(), cells);
  };
  command.gather = [options, self](std::span<const std::string> arguments,
                                   std::vector<JobRows> jobs) {
    Cells cells(self(), {.processes = options->processes}, arguments, std::move(jobs));
    return run_all(self(), cells);
  };
}

}  // namespace tracestep::cli
