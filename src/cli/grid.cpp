#include "cli/grid.h"

#include <fmt/format.h>

#include "base/error.h"
#include "lab/measure/ceilings.h"

namespace tracestep::cli {

void add_round_options(OptionSet& set, RoundOptions& options) {
  set.integer("--rounds", options.rounds, {1, 1000},
              "measure all cells in so many rounds, in an order drawn by lot, each cell prepared "
              "anew: --steps samples in each. Cells are then compared with the first; nine "
              "rounds can tell");
  set.is_of_all_cells();
  set.integer("--repeat", options.repeat, {1, 100},
              "with --rounds, each cell so many times as cells of their own: what copies differ by "
              "is noise");
  set.is_of_all_cells();
}

void check_rounds(const RoundOptions& options) {
  if (options.repeat == 1 || options.rounds > 1) return;
  throw Error(ErrorCode::kUsage, "--repeat", "copies of a cell are measured in rounds",
              "add --rounds 9");
}

void add_beside(const std::vector<BesideCell>& cells, std::vector<Table>& tables) {
  Table beside = beside_table(cells);
  if (!beside.rows.empty()) tables.push_back(std::move(beside));
}

GridView::GridView(std::vector<double> costs) : costs_(std::move(costs)) {
  for (const double cost : costs_) left_.plan(cost);
}

void GridView::begin(std::size_t cell, const std::string& label) {
  at_ = cell;
  label_ = label;
  left_.begin(costs_[cell]);
  show("");
}

void GridView::end() {
  left_.reach(1);
}

void GridView::show_visit(int round, int rounds, const std::string& label) {
  const double all = rounds * static_cast<double>(costs_.size());
  line_.update(fmt::format("round {} of {}, {:.0f} %  {}", round, rounds,
                           100 * static_cast<double>(visits_++) / all, label));
}

std::function<void(std::size_t done, std::size_t most)> GridView::observer() {
  if (!line_.is_shown()) return {};
  return [this](std::size_t done, std::size_t most) {
    left_.reach(static_cast<double>(done) / static_cast<double>(most));
    show(fmt::format("step {} of {}  ", done + 1, most));
  };
}

// A narrow terminal cuts the end, so the most useful parts come first.
void GridView::show(const std::string& part) {
  line_.update(fmt::format("{}/{}  {}{}{}{}", at_ + 1, costs_.size(), spaced(left_.bar()), part,
                           spaced(left_.text()), label_));
}

namespace {

// The speed of a row; 0 for a row without one.
double tflops_of(const CellResult& result) {
  if (result.status != Status::kOk || !result.computes || result.wall_ms <= 0) return 0.0;
  return static_cast<double>(result.flops) / result.wall_ms * 1e-9;
}

}  // namespace

std::vector<CellResult> measure_steps(const std::vector<RunSpec>& runs, const Protocol& protocol,
                                      RoundOptions options, const StopSignal& stop,
                                      std::optional<double> roof) {
  std::vector<CellSpec> cells;
  for (const RunSpec& run : runs) {
    cells.push_back({run, protocol});
    if (!roof) roof_tflops(run);  // before the first row, not in the middle of one
  }
  if (options.seed == 0 && !runs.empty()) options.seed = runs[0].seed;
  std::vector<CellResult> out = measure_grid<CellResult>(
      cells, options, stop, [&](const CellSpec& spec, const StepObserver& observe) {
        return visit(make_device, spec, &stop, observe);
      });
  for (CellResult& result : out) {
    const RunSpec& run = result.spec.step;
    result.roof_tflops = roof ? *roof : roof_tflops_for(run, tflops_of(result));
    if (!roof) result.roof_others_cores = roof_others_cores(run);
  }
  return out;
}

}  // namespace tracestep::cli
