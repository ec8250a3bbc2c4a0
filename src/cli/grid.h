// Sizes × contexts × modes × precisions × ops × forms of attention: the cells that `bench` and
// `memory` work through.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "train/step_program.h"

namespace tracestep::cli {

struct GridOptions {
  ModelOptions model;
  RunOptions run;
  std::vector<std::int64_t> contexts = {512};
  std::int64_t batch = 4;
  std::vector<std::string> modes = {"step"};
};

struct GridCell {
  StepSpec step;
  std::string precision;
};

void add_grid_options(OptionSet& set, GridOptions& grid, std::string devices);

// In the order of a person's table: by size, then context, mode, precision, granularity, form of
// attention.
// Error{kUsage} for combinations that make no program.
std::vector<GridCell> grid_cells(const GridOptions& grid);

}  // namespace tracestep::cli
