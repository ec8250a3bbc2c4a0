// Connects `--device cuda` to the GPUs of this build and machine. Only cuda.cpp depends on whether
// the CUDA back end was built; without it these functions report that it is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "lab/report/table.h"
#include "run/run_spec.h"
#include "runtime/communicator.h"
#include "runtime/device.h"

namespace tracestep::cli {

// The number of the GPU: 0 for "cuda", 3 for "cuda:3"; nullopt for other names.
std::optional<int> cuda_index(std::string_view device);

// Throws Error{kDevice} without the CUDA back end in this build, or without driver or device.
void check_cuda(const Place& place);

// Throws Error{kUsage}, {kInput} or {kOutput} for --tune, --tune-file and --deterministic that
// contradict each other or do not apply to the device.
void check_tuning(const Place& place);

// Makes the run's GPU. Throws as check_cuda(), and Error{kDevice} for a GPU that is too old.
std::unique_ptr<Device> make_cuda(const RunSpec& run);

// The free bytes of a GPU's memory, by the driver; nullopt: `device` is no GPU.
std::optional<std::int64_t> cuda_free_bytes(Device& device);

// A group of ranks with a GPU each. Errors as make_nccl_group().
std::unique_ptr<Communicator> make_cuda_group(Processes& processes, Device& device);

// The tables of `doctor --ceilings` for a GPU: memory, issuing, square matrix products in every
// precision; errors as make_cuda().
std::vector<Table> cuda_ceiling_tables(const RunSpec& run);

// Adds the GPU, the driver and the libraries to the environment of a result, with null for unknown
// facts; adds nothing when `place.device` is not a CUDA device.
void add_cuda_environment(const Place& place, Json& environment);

// Adds rows (part, state, note) for the back end, each GPU, the driver and the libraries.
void add_cuda_parts(Table& parts);

}  // namespace tracestep::cli
