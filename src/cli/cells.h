// The driver of experiments: cells are measured one after the other, in rounds
// (lab/measure/rounds.h), each in new processes or by jobs of a cluster, and what is measured is
// kept in a file that a later call goes on from. A command asks for its cells, gets their results
// as values wherever they come from, and makes its tables of them.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/signals.h"
#include "cli/devices.h"
#include "cli/grid.h"
#include "cli/job_plan.h"
#include "cli/options.h"
#include "cli/rows_file.h"
#include "cli/stored_results.h"
#include "cli/syntax.h"
#include "lab/measure/beside.h"
#include "lab/measure/rounds.h"
#include "lab/measure/validity.h"
#include "spec/fields.h"

namespace tracestep {

inline std::string label_of(const MemoryRunSpec& spec) {
  return label_of(spec.step);
}
inline double visit_weight(const MemoryRunSpec&) {
  return 1;
}

namespace cli {

struct Command;

struct CellOptions {
  std::filesystem::path resume = {};
  int processes = 1;
  // "step:3,5": this process measures those cells alone, for another one; "step:3/1": one visit.
  std::string only = {};

  bool is_used() const { return processes > 1 || !resume.empty() || !only.empty(); }
};

// The rows that a job of a cluster has measured.
struct JobRows {
  std::string cells;  // "step:3"
  std::vector<RowsFile::Row> rows;
};

// The whole result of a command.
struct CellTables {
  const OutputOptions& output;
  std::string schema = {};
  Json environment = {};
  std::vector<Table> tables = {};
  std::vector<Table> drawn = {};         // besides, for pictures
  std::size_t done = 0, wanted = 0;      // rows: fewer are done where a signal came
  bool is_cut = false;                   // something else is missing because of it
  std::optional<Error> last_words = {};  // thrown once all is written
};

// All fields of a run that are not as usual, those that no result shows included.
Json full_key(const RunSpec& run);
inline Json full_key(const CellSpec& spec) {
  Json out = full_key(spec.step);
  if (spec.copy > 1) out["copy"] = spec.copy;
  out["warmup"] = spec.protocol.warmup;
  return out;
}
Json full_key(const AttentionSpec& spec);
Json full_key(const CollectiveSpec& spec);
Json full_key(const OpSpec& spec);
inline Json full_key(const MemoryRunSpec& spec) {
  return full_key(spec.step);
}

// Adds what the file does not keep, where it is not there.
void add_program(CellResult& result);

// Behind the number of a cell: one visit of it, of how many it may have.
inline constexpr std::string_view kOneVisit = "/1";

// Measures nothing, and lists the cells.
struct ListsCells {};

class Cells {
 public:
  // `arguments`: the whole command line. Errors: as RowsFile(); kUsage for --cell that is none.
  Cells(const Command& command, const CellOptions& options, std::span<const std::string> arguments);
  // Finds the cells and what each needs, by running the command up to their measurement.
  Cells(const Command& command, const CellOptions& options, std::span<const std::string> arguments,
        ListsCells lists);
  // Measures nothing: the results are those of jobs, which may have run on another machine.
  Cells(const Command& command, const CellOptions& options, std::span<const std::string> arguments,
        std::vector<JobRows> jobs);

  std::span<const std::string> arguments() const { return arguments_; }
  // kPlan: nothing runs on the device here, which may not be there.
  DeviceUse use() const { return role_ == Role::kMeasures ? DeviceUse::kRun : DeviceUse::kPlan; }
  // Makes the device, or where nothing runs one with its traits that computes nothing.
  DeviceFactory device_factory() const;
  // The environment of the result: that of this process, or of the first job.
  Json environment_of(const RunSpec& run);
  // The rows of a table that has one for each result of the last measure(), for the checker: those
  // of several jobs were measured apart.
  std::vector<ResultRow> rows_of(const Table& table, const Json& environment) const;
  // The signal that ends the measurement, from the first call on; a line says that `what` of those
  // measured so far are written.
  const StopSignal& stop(std::string_view what = "rows");
  bool is_stopped() const { return stop_ && stop_->requested(); }
  // True if this process measures one cell for another one, which writes tables and files.
  bool is_child() const { return !options_.only.empty(); }
  // True if it measures a cell of this stage.
  bool is_asked_for(const std::string& stage) const {
    return options_.only.starts_with(stage + ":");
  }
  // True if files beside the result are to be written: once, however many processes measure.
  bool writes_files() const { return makes_tables() && pass_ == 0; }
  // False if tables are left to another process.
  bool makes_tables() const { return !is_child() && !lists(); }
  // True if cells are listed: nothing is measured.
  bool lists() const { return role_ == Role::kLists; }

  // The results of cells in their order, each for every copy: measured, or found in the file; fewer
  // when a signal came, and none where cells are listed. `stage`: the name of their rows.
  // `needs(spec)`: the JobPlan of a visit. `measure_one(spec, observer)`: an interrupted result
  // ends the measurement. `is_apart`: each cell is measured in a process of its own.
  template <class Result, class Spec, class NeedsOf, class MeasureOne>
  std::vector<Result> measure(const std::string& stage, const std::vector<Spec>& cells,
                              const RoundOptions& options, const NeedsOf& needs,
                              const MeasureOne& measure_one, bool is_apart = false);
  // Says what a command needs that measures no cells.
  void needs_whole(const JobPlan& plan) { whole_ = plan; }
  // The cells that were listed; one for the whole command where it has none.
  std::vector<PlannedCell> planned() const;
  // Returns what belongs to a cell besides and is measured once with it: from the file, else
  // make().
  template <class Value, class Spec, class Make>
  Value besides(const std::string& stage, const Spec& spec, const Make& make);
  // Adds what rounds tell of cells beside each other.
  template <class Result>
  void add_beside(const std::string& stage, const std::vector<Result>& results,
                  std::vector<Table>& tables);

  // Writes the tables, when every process has measured; else keeps them. Returns the exit status.
  int finish(CellTables result);
  // True if the command is to run again, for the next process of each cell.
  bool goes_on();

 private:
  enum class Role { kMeasures, kLists, kGathers };

  std::size_t passes() const {
    return static_cast<std::size_t>(options_.processes) * static_cast<std::size_t>(rounds_);
  }
  bool has_processes() const { return options_.processes > 1; }
  bool must_stop() const;
  Json key_of_row(const std::string& stage, Json key, std::optional<int> round = {}) const;
  const Json* row(const Json& key) const { return file_.find(key); }
  void keep(std::vector<RowsFile::Row> rows);
  void keep(const Json& key, Json row) { keep({{key, std::move(row)}}); }
  // The cells of this stage that this process measures; in a child those that it is asked for.
  std::vector<std::size_t> chosen(const std::string& stage, std::size_t count) const;
  // Adds a cell to those that are listed.
  void list(const std::string& stage, std::size_t cell, Json key, JobPlan visit,
            const RoundOptions& options);
  // How many processes of the cell with this key are there; without processes 1 or 0.
  std::size_t known_of(Json key) const;
  void say_known(std::size_t known, std::size_t all);
  // The order in which cells are visited. Processes take turns by lot: each cell once before the
  // next process of any, so that what changes on the machine meets all alike.
  std::vector<std::size_t> order_of(std::size_t count) const;
  std::string words_of_visit(int round, int rounds) const;
  // Has a new process measure the cell, so that its row is there; false: a signal came.
  bool measure_in_process(const std::string& stage, std::size_t cell, const Json& key);
  void write_merged(const CellTables& last);
  int finish_child(const CellTables& result);
  void note_jobs(CellTables& result) const;

  template <class Result, class Spec>
  std::optional<Result> found(const Json& key, const Spec& spec) const {
    const Json* json = row(key);
    if (json == nullptr) return std::nullopt;
    try {
      Result out = stored::value_of<Result>(*json);
      out.spec = spec;
      if constexpr (std::same_as<Result, CellResult>) {
        if (spec.step.parallel.is_on()) add_program(out);  // joined visits look for collectives
      }
      return out;
    } catch (const Error&) {  // of a build that had other members
      return std::nullopt;
    }
  }
  const Command& command_;
  const CellOptions options_;
  const Words arguments_;
  const Role role_ = Role::kMeasures;
  RowsFile file_;
  std::vector<RowsFile::Row> new_rows_;  // of a child, in the order in which they came
  std::vector<PlannedCell> listed_;
  std::optional<JobPlan> whole_;
  Place place_;  // of environment_of()
  struct Job {
    std::string cells;
    Json environment;
  };
  std::vector<Job> jobs_;
  std::map<std::string, std::size_t> job_of_;  // by the texts of keys
  std::vector<std::size_t> jobs_of_results_;   // of the last measure()
  std::optional<StopSignal> stop_;
  int rounds_ = 1;
  std::size_t pass_ = 0;  // which process of each cell; a round is one more of each
  bool has_cells_ = false, has_ended_ = false;
  std::vector<Json> documents_;  // of the passes before
};

template <class Result, class Spec, class NeedsOf, class MeasureOne>
std::vector<Result> Cells::measure(const std::string& stage, const std::vector<Spec>& cells,
                                   const RoundOptions& options, const NeedsOf& needs,
                                   const MeasureOne& measure_one, bool is_apart) {
  stop();
  has_cells_ = true;
  rounds_ = options.rounds;
  std::vector<Spec> specs;
  for (const Spec& cell : cells) {
    for (int copy = 1; copy <= options.repeat; ++copy) {
      specs.push_back(cell);
      if constexpr (requires { cell.copy; }) specs.back().copy = copy;
    }
  }
  if (role_ == Role::kLists) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      list(stage, i, full_key(specs[i]), needs(specs[i]), options);
    }
    return {};
  }
  const std::vector<std::size_t> numbers = chosen(stage, specs.size());  // of specs among all
  if (is_child()) {
    std::vector<Spec> some;
    for (const std::size_t number : numbers) some.push_back(specs[number]);
    specs = std::move(some);
  }
  // A round of processes is one more process of each cell.
  const bool is_one_visit = has_processes() || options_.only.ends_with(kOneVisit);
  const int rounds = is_one_visit ? 1 : options.rounds;
  const bool in_process = has_processes() || (is_apart && !is_one_visit);
  const auto key = [&](std::size_t i, int round) {
    return key_of_row(stage, full_key(specs[i]),
                      rounds > 1 ? std::optional<int>(round) : std::nullopt);
  };
  std::vector<double> weights, missing;
  std::size_t known = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    weights.push_back(visit_weight(specs[i]));
    for (int round = 0; round < rounds; ++round) {
      const Json here = key(i, round);
      if (row(here) == nullptr) missing.push_back(weights.back());
      if (pass_ == 0) known += known_of(here);
    }
  }
  say_known(known, specs.size() * (has_processes() ? passes() : static_cast<std::size_t>(rounds)));
  GridView view(missing);
  std::vector<std::optional<Result>> out(specs.size());
  // Joins the result of a visit; false: the cell is not visited again.
  const auto visit_one = [&](std::size_t i, int round) {
    const Json here = key(i, round);
    std::optional<Result> seen = found<Result>(here, specs[i]);
    if (!seen) {
      if (must_stop()) return false;
      view.begin(weights[i], words_of_visit(round, rounds) + label_of(specs[i]));
      if (in_process) {
        if (!measure_in_process(stage, numbers[i], here)) return false;
        seen = found<Result>(here, specs[i]);
      } else {
        Spec visited = specs[i];
        if constexpr (requires { visited.protocol.recorded_steps; }) {
          int& recorded = visited.protocol.recorded_steps;
          if (rounds > 1) recorded = round < recorded ? 1 : 0;
        }
        seen = measure_one(visited, view.observer());
        if (seen->status == Status::kInterrupted) return false;
        keep(here, stored::json_of(*seen));
        seen->spec = specs[i];
      }
      view.end();
    }
    const bool is_ok = seen->status == Status::kOk;
    if (!out[i]) {
      out[i] = std::move(seen);
    } else if constexpr (requires(Result & result) { add_visit(result, result); }) {
      if (is_ok) add_visit(*out[i], *seen);
    }
    return is_ok;
  };
  if (rounds > 1) {
    run_rounds(weights, {.least = rounds, .most = rounds, .seed = options.seed}, visit_one,
               &*stop_);
  } else {
    for (const std::size_t i : order_of(specs.size())) visit_one(i, 0);
  }
  std::vector<Result> results;
  jobs_of_results_.clear();
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i]) continue;
    results.push_back(*std::move(out[i]));
    if (const auto job = job_of_.find(key(i, 0).dump()); job != job_of_.end()) {
      jobs_of_results_.push_back(job->second);
    }
  }
  return results;
}

template <class Value, class Spec, class Make>
Value Cells::besides(const std::string& stage, const Spec& spec, const Make& make) {
  const Json key = key_of_row(stage, full_key(spec));
  if (const Json* known = row(key)) return stored::value_of<Value>(*known);
  Value out = make();
  if (!is_stopped()) keep(key, stored::json_of(out));
  return out;
}

template <class Result>
void Cells::add_beside(const std::string& stage, const std::vector<Result>& results,
                       std::vector<Table>& tables) {
  std::vector<Result> all = results;
  if (has_processes() && rounds_ > 1) {  // each process was a visit
    for (Result& result : all) {
      for (std::size_t pass = 0; pass < pass_; ++pass) {
        Json key = key_of_row(stage, full_key(result.spec));
        key["process"] = static_cast<std::int64_t>(pass);
        const std::optional<Result> other = found<Result>(key, result.spec);
        if (other && other->status == Status::kOk && result.status == Status::kOk) {
          add_visit(result, *other);
        }
      }
    }
  }
  Table beside = beside_table(beside_cells(all));
  if (!beside.rows.empty()) tables.push_back(std::move(beside));
}

// The highest speed of a device, for the validity checker.
struct Roof {
  double tflops = 0;
  std::optional<double> others_cores;
};
inline auto stored_members(Roof& s) {
  return std::tie(s.tflops, s.others_cores);
}

struct StepNeeds {
  // The highest speed of the device for the validity checker, TFLOP/s; none: measured before the
  // first cell; 0: not known.
  std::optional<double> roof = 0.0;
  bool program = false;  // tables read the program, and the spans of the recorded step
  std::string stage = "step";
  double more_steps = 0, more_seconds = 0;  // that the command takes for each cell besides
};

// The cells of these runs, measured so.
std::vector<CellResult> measure_steps(Cells& cells, const std::vector<RunSpec>& runs,
                                      const Protocol& protocol, RoundOptions options,
                                      const StepNeeds& needs = {});

// Adds --processes, --resume and --cell to a command that runs with Cells.
void add_cells(Command& command);

}  // namespace cli
}  // namespace tracestep
