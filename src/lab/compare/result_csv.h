// A result of bench as its CSV writer has it, read back.
#pragma once

#include <filesystem>
#include <vector>

#include "lab/measure/validity.h"

namespace tracestep {

// Errors: kInput for a file that is not there, has no columns of bench, or is beyond the limits of
// compare.h or 2^20 cells.
std::vector<ResultRow> read_result_csv(const std::filesystem::path& path);

}  // namespace tracestep
