// What `--device cuda` means in this build and on this machine. Only cuda.cpp knows whether the
// CUDA back end was built; without it everything here says so.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "lab/measure/ceilings.h"
#include "lab/report/table.h"
#include "runtime/device.h"
#include "spec/run_spec.h"

namespace tracestep::cli {

// 0 for "cuda", 3 for "cuda:3"; nothing for other names.
std::optional<int> cuda_index(std::string_view device);

// Error{kDevice}: no back end in this build, no driver, no such device.
void check_cuda(const Place& place);

// Error{kUsage}, {kInput}, {kOutput}: --tune, --tune-file and --deterministic that do not fit
// together or to the device.
void check_tuning(const Place& place);

// Errors as check_cuda(), and for a GPU that is too old.
std::unique_ptr<Device> make_cuda(const RunSpec& run);

// The fastest matrix product of the run's precision that the device reaches, in TFLOP/s; 0: not
// known.
double cuda_roof_tflops(const RunSpec& run);

// The GPU's measured ceilings for the run's precision; errors as make_cuda().
Ceilings cuda_ceilings(const RunSpec& run);

// What `doctor --ceilings` shows of a GPU: memory, issuing, square matrix products in every
// precision; errors as make_cuda().
std::vector<Table> cuda_ceiling_tables(const RunSpec& run);

// Adds the GPU, the driver and the libraries to the environment of a result on `place.device`; adds
// nothing for other devices, nulls for what is not known.
void add_cuda_environment(const Place& place, Json& environment);

// Adds rows of part, state and note: the back end, each GPU, driver and libraries.
void add_cuda_parts(Table& parts);

}  // namespace tracestep::cli
