// The weights that come with --model FOLDER.
#pragma once

#include <filesystem>

#include "spec/run_grid.h"

namespace tracestep::cli {

// Where --init is left out and --model names a folder that has weights, these are `init`; a line
// says so, and another where the folder has none. --init none is an empty path: from --seed.
void take_weights_of_model(const RunGrid& grid, std::filesystem::path& init);

}  // namespace tracestep::cli
