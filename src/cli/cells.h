// The driver for the cells of a command. Cells are measured one after the other, in rounds
// (lab/measure/rounds.h), each in new processes, or by jobs of a cluster. Results are kept in a
// file from which a later call continues. A command lists its cells, gets results wherever they
// were measured, and makes its tables from them.
#pragma once

#include <array>
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
#include "cli/syntax.h"
#include "lab/driver/driver.h"
#include "lab/measure/beside.h"
#include "lab/measure/validity.h"

namespace tracestep::cli {

struct Command;

struct CellOptions {
  std::filesystem::path resume = {};
  int processes = 1;
  // The only cells that this process measures, for another process: "step:3,5"; "step:3/1" is one
  // visit of a cell.
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
  std::vector<Table> drawn = {};  // Further tables, for pictures only.
  // Rows that were measured and rows that were asked for; fewer were measured if a signal came.
  std::size_t done = 0, wanted = 0;
  bool is_cut = false;                   // True: the signal left something else incomplete.
  std::optional<Error> last_words = {};  // An error to throw after everything is written.
};

// Adds the cell's program to a result that lacks it, as the file of rows does not keep programs.
void add_program(CellResult& result);

// The suffix of a cell's number ("step:3/1") by which a process is asked for a single visit of the
// cell; the number in it is how many visits the cell may have.
inline constexpr std::string_view kOneVisit = "/1";

// Selects the constructor that lists the cells without measuring.
struct ListsCells {};

class Cells final : public Driver {
 public:
  // Opens the file of rows. `arguments`: the whole command line. Throws as RowsFile(), and
  // Error{kUsage} for a --cell that does not exist.
  Cells(const Command& command, const CellOptions& options, std::span<const std::string> arguments);
  // Lists the cells and what each needs, by running the command up to their measurement.
  Cells(const Command& command, const CellOptions& options, std::span<const std::string> arguments,
        ListsCells lists);
  // Measures nothing: takes the results of jobs, which may have run on another machine.
  Cells(const Command& command, const CellOptions& options, std::span<const std::string> arguments,
        std::vector<JobRows> jobs);

  std::span<const std::string> arguments() const { return arguments_; }
  // How the device is used; kPlan: nothing runs on it, and it need not be in this machine.
  DeviceUse use() const { return role_ == Role::kMeasures ? DeviceUse::kRun : DeviceUse::kPlan; }
  // Makes the device; if nothing is to run, one with the same traits that computes nothing.
  DeviceFactory device_factory() const;
  // The environment of the result: that of this process, or of the first job.
  Json environment_of(const RunSpec& run);
  // The rows of a table for the validity checker; the table has a row for each result of the last
  // measure(). Rows of different jobs carry their own environments.
  std::vector<ResultRow> rows_of(const Table& table, const Json& environment) const;
  // The signal that ends measuring, which is caught from the first call on. When it comes, a line
  // says that the `what` measured up to now are written.
  const StopSignal& stop(std::string_view what = "rows");
  const StopSignal* stop_signal() const override { return stop_ ? &*stop_ : nullptr; }
  std::string asked() const override { return options_.only; }
  // True if another process asks this one for a cell of this stage.
  bool is_asked_for(const std::string& stage) const {
    return options_.only.starts_with(stage + ":");
  }
  // True if this pass writes files beside the result; they are written once, however many processes
  // measure.
  bool writes_files() const { return makes_tables() && pass_ == 0; }
  // True if this process makes the tables; false: it measures for another one, or lists cells.
  bool makes_tables() const { return !is_child() && !lists(); }
  // True if the cells are only listed and nothing is measured.
  bool lists() const { return role_ == Role::kLists; }

  // True if each cell is measured in several processes.
  bool has_processes() const { return options_.processes > 1; }
  // How often a cell is visited with this many rounds; 0: neither rounds nor processes were asked
  // for.
  int visits(std::optional<std::int64_t> rounds) const {
    return rounds || has_processes() ? static_cast<int>(rounds.value_or(1)) * options_.processes
                                     : 0;
  }

  // The results of cells and their copies (--repeat): measured now, or found in the file. There
  // are fewer if a signal came, and none if cells are only listed. `stage`: the name of these
  // cells' rows. `needs(spec)`: the JobPlan of a visit. `measure_one(spec, observer)`: measures a
  // visit; an interrupted result ends measuring. `is_apart`: a new process measures each cell.
  template <class Result, class Spec, class NeedsOf, class MeasureOne>
  std::vector<Result> measure(const std::string& stage, const std::vector<Spec>& cells,
                              const RoundOptions& options, const NeedsOf& needs,
                              const MeasureOne& measure_one, bool is_apart = false);
  // States what a command needs that has no cells.
  void needs_whole(const JobPlan& plan) { whole_ = plan; }
  // The cells that were listed; a command without cells has one for the whole command.
  std::vector<PlannedCell> planned() const;
  // Returns a value stored beside the cell of `spec`, or makes it by make() (Driver::besides()).
  template <class Value, class Spec, class Make>
  Value besides(const std::string& stage, const Spec& spec, const Make& make) {
    return Driver::besides<Value>(stage, full_key(spec), make);
  }
  void complete(CellResult& result) const override { add_program(result); }
  // Adds the table of each cell's times relative to those of the first cell (beside_table()).
  template <class Result>
  void add_beside(const std::string& stage, const std::vector<Result>& results,
                  std::vector<Table>& tables);

  // Writes the tables once every process has measured; before that it keeps them. Returns the exit
  // status.
  int finish(CellTables result);
  // True if the command must run again, for the next process of each cell.
  bool goes_on();

 private:
  enum class Role { kMeasures, kLists, kGathers };

  std::size_t passes() const {
    return static_cast<std::size_t>(options_.processes) * static_cast<std::size_t>(rounds_);
  }
  bool must_stop() const override;
  Json key_of_row(const std::string& stage, Json key, std::optional<int> round = {}) const override;
  const Json* row(const Json& key) const override { return file_.find(key); }
  bool keeps_rows() const override { return options_.is_used(); }
  void keep(std::vector<RowsFile::Row> rows);
  void keep(const Json& key, Json row) override { keep({{key, std::move(row)}}); }
  // Returns the numbers of the stage's cells to measure; a child process measures those asked for.
  std::vector<std::size_t> chosen(const std::string& stage, std::size_t count) const override;
  // Adds a cell to the list of cells.
  void list(const std::string& stage, std::size_t cell, Json key, JobPlan visit,
            const RoundOptions& options);
  // How many processes have measured the cell with this key; without --processes 1 or 0.
  std::size_t known_of(Json key) const;
  // The cells in random order. Each cell is measured once before any is measured by a second
  // process, so that changes of the machine affect all alike.
  std::vector<std::size_t> order_of(std::size_t count) const override;
  bool has_child_processes() const override { return !options_.only.ends_with(kOneVisit); }
  bool measure_in_process(const std::string& stage, std::size_t cell, const Json& key) override;
  void begin_visits(std::span<const Json> keys, std::span<const double> missing) override;
  void begin_visit(double weight, const std::string& label, int round, int rounds) override;
  void end_visit() override {
    if (view_) view_->end();
  }
  void end_visits() override { view_.reset(); }
  StepObserver observer() override { return view_ ? view_->observer() : StepObserver(); }
  void write_merged(const CellTables& last);
  int finish_child(const CellTables& result);
  void note_jobs(CellTables& result) const;

  const Command& command_;
  const CellOptions options_;
  const Words arguments_;
  const Role role_ = Role::kMeasures;
  RowsFile file_;
  // The rows of a child process, in the order in which they came.
  std::vector<RowsFile::Row> new_rows_;
  std::vector<PlannedCell> listed_;
  std::optional<JobPlan> whole_;
  Place place_;  // The place of environment_of().
  struct Job {
    std::string cells;
    Json environment;
  };
  std::vector<Job> jobs_;
  std::map<std::string, std::size_t> job_of_;  // The job of each row, by the text of its key.
  std::vector<std::size_t> jobs_of_results_;   // The job of each result of the last measure().
  std::optional<StopSignal> stop_;
  std::optional<GridView> view_;
  int rounds_ = 1;
  // Which process of each cell is measured now; a round is one more process of each cell.
  std::size_t pass_ = 0;
  bool has_cells_ = false, has_ended_ = false;
  std::vector<Json> documents_;  // The documents of earlier passes.
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
  // With processes, each round is one more process of each cell.
  const int rounds = has_processes() || options_.only.ends_with(kOneVisit) ? 1 : options.rounds;
  std::vector<Result> results;
  jobs_of_results_.clear();
  for (std::optional<Result>& result :
       visit_cells<Result>(stage, specs, {.least = rounds, .most = rounds, .seed = options.seed},
                           measure_one, has_processes() || is_apart)) {
    if (!result) continue;
    const Json key = key_of_row(stage, full_key(result->spec),
                                rounds > 1 ? std::optional<int>(0) : std::nullopt);
    results.push_back(*std::move(result));
    if (const auto job = job_of_.find(key.dump()); job != job_of_.end()) {
      jobs_of_results_.push_back(job->second);
    }
  }
  return results;
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

// The device's ceiling, for the validity checker.
struct Roof {
  double tflops = 0;
  std::optional<double> others_cores;
};
inline auto stored_members(Roof& s) {
  return std::tie(s.tflops, s.others_cores);
}

struct StepNeeds {
  // The ceiling in TFLOP/s for the validity checker; nullopt: it is measured before the first cell;
  // 0: not known.
  std::optional<double> roof = 0.0;
  bool program = false;  // True: tables read the program and the spans of the recorded step.
  std::string stage = "step";
  // Steps and seconds that the command takes for each cell besides the timed steps.
  double more_steps = 0, more_seconds = 0;
};

// Measures the cells of these runs with these options.
std::vector<CellResult> measure_steps(Cells& cells, const std::vector<RunSpec>& runs,
                                      const Protocol& protocol, RoundOptions options,
                                      const StepNeeds& needs = {});

// Adds --processes, --resume and --cell to a command that runs with Cells.
void add_cells(Command& command);

}  // namespace tracestep::cli
