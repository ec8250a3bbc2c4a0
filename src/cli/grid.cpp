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
  set.integer("--repeat", options.repeat, {1, 100},
              "with --rounds, each cell so many times as cells of their own: what copies differ by "
              "is noise");
}

void check_rounds(const RoundOptions& options) {
  if (options.repeat == 1 || options.rounds > 1) return;
  throw Error(ErrorCode::kUsage, "--repeat", "copies of a cell are measured in rounds",
              "add --rounds 9");
}

GridView::GridView(std::span<const double> costs) : count_(costs.size()) {
  for (const double cost : costs) left_.plan(cost);
}

void GridView::begin(double cost, const std::string& label) {
  ++at_;
  label_ = label;
  left_.begin(cost);
  show("");
}

void GridView::end() {
  left_.reach(1);
}

std::function<void(std::size_t done, std::size_t most)> GridView::observer() {
  if (!line_.is_shown()) return {};
  return [this](std::size_t done, std::size_t most) {
    left_.reach(static_cast<double>(done) / static_cast<double>(most));
    show(fmt::format("step {} of {}  ", done + 1, most));
  };
}

// Shows the line, its most useful parts first, as a narrow terminal cuts its end.
void GridView::show(const std::string& part) {
  line_.update(fmt::format("{}/{}  {}{}{}{}", at_, count_, spaced(left_.bar()), part,
                           spaced(left_.text()), label_));
}

}  // namespace tracestep::cli
