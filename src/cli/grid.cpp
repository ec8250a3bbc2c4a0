#include "cli/grid.h"

#include "lab/time/cell.h"

namespace tracestep::cli {

void add_grid_options(OptionSet& set, GridOptions& grid, std::string devices) {
  set.choices("--mode", grid.modes, kModeNames, "what a step does");
  set.integers("--context", grid.contexts, kShapeRange, "tokens in a sequence, T; 512");
  set.integer("--batch", grid.batch, kShapeRange, "sequences in a batch, B; 4");
  add_model_options(set, grid.model);
  add_run_options(set, grid.run, std::move(devices));
}

std::vector<GridCell> grid_cells(const GridOptions& grid) {
  std::vector<GridCell> out;
  for (const ModelConfig& model : models_of(grid.model, "small")) {
    for (std::int64_t context : grid.contexts) {
      check_shape(model, {grid.batch, context});
      for (const std::string& mode : grid.modes) {
        for (const std::string& precision : grid.run.precisions) {
          for (const std::string& ops : grid.run.ops) {
            for (const std::string& attention : grid.run.attention) {
              GridCell cell{{.model = model,
                             .shape = {grid.batch, context},
                             .mode = mode_of(mode),
                             .ops = granularity_of(ops),
                             .attention = attention_of(attention)},
                            precision};
              apply_precision(cell.step.model, precision);
              out.push_back(std::move(cell));
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace tracestep::cli
