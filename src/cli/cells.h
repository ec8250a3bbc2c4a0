// The driver of a command's cells: they are measured one after the other, in rounds
// (lab/measure/rounds.h), each in new processes or by jobs of a cluster, and what is measured is
// kept in a file that a later call goes on from. A command asks for its cells, gets their results
// as values wherever they come from, and makes its tables of them.
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

// Adds what the file does not keep, where it is not there.
void add_program(CellResult& result);

// Behind the number of a cell: one visit of it, of how many it may have.
inline constexpr std::string_view kOneVisit = "/1";

// Measures nothing, and lists the cells.
struct ListsCells {};

class Cells final : public Driver {
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
  const StopSignal* stop_signal() const override { return stop_ ? &*stop_ : nullptr; }
  std::string asked() const override { return options_.only; }
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

  // True if each cell is measured in several processes.
  bool has_processes() const { return options_.processes > 1; }
  // How often a cell is visited in so many rounds; 0: neither rounds nor processes are asked for.
  int visits(std::optional<std::int64_t> rounds) const {
    return rounds || has_processes() ? static_cast<int>(rounds.value_or(1)) * options_.processes
                                     : 0;
  }

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
  // As Driver::besides(), of the cell with this specification.
  template <class Value, class Spec, class Make>
  Value besides(const std::string& stage, const Spec& spec, const Make& make) {
    return Driver::besides<Value>(stage, full_key(spec), make);
  }
  void complete(CellResult& result) const override { add_program(result); }
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
  bool must_stop() const override;
  Json key_of_row(const std::string& stage, Json key, std::optional<int> round = {}) const override;
  const Json* row(const Json& key) const override { return file_.find(key); }
  bool keeps_rows() const override { return options_.is_used(); }
  void keep(std::vector<RowsFile::Row> rows);
  void keep(const Json& key, Json row) override { keep({{key, std::move(row)}}); }
  // In a child those that it is asked for.
  std::vector<std::size_t> chosen(const std::string& stage, std::size_t count) const override;
  // Adds a cell to those that are listed.
  void list(const std::string& stage, std::size_t cell, Json key, JobPlan visit,
            const RoundOptions& options);
  // How many processes of the cell with this key are there; without processes 1 or 0.
  std::size_t known_of(Json key) const;
  // Processes take turns by lot: each cell once before the next process of any, so that what
  // changes on the machine meets all alike.
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
  std::optional<GridView> view_;
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
  // A round of processes is one more process of each cell.
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

}  // namespace tracestep::cli
