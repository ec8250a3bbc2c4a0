// Checks that this build and machine have the device of a run, and fills in its threads. Concrete
// back ends are named only here.
#pragma once

#include <vector>

#include "base/json.h"
#include "lab/report/table.h"
#include "planning/device_traits.h"
#include "run/run_spec.h"
#include "session/devices.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

// Registers the devices of this build for make_device().
void register_devices();

// The devices that a command accepts besides those that compute fast: the slow reference device,
// and the null device, which only plans.
enum class Takes : std::uint8_t { kFast = 0, kOracle = 1, kPlanner = 2, kAll = 3 };

// Whether a command runs on the device, which must then be present, or only plans for it.
enum class DeviceUse { kRun, kPlan };

// Whether a command runs steps that several ranks share (--parallel). kUsedByLaterModel: the model
// is not known yet, and the caller later checks how ranks divide it.
enum class Ranks { kRefused, kUsed, kUsedByLaterModel };

// Throws Error{kUsage} for unknown names (with the nearest one) and for devices that the command
// does not support (`takes`), Error{kDevice} for devices that this build or this machine does not
// have. Cheap: no device is started.
void check_device(const RunSpec& run, Takes takes, DeviceUse use = DeviceUse::kRun);
// Returns the run on the device of this process, after checks of the device (check_device()) and of
// the model (weights/model_notes.h), with its CPU threads filled in: the number that --threads
// gives, else that of OMP_NUM_THREADS or of all allowed cores, shared out among the ranks. Throws
// as these checks, and Error{kUsage} for ranks that the command refuses (`ranks`), that cannot run
// on the device, or that several processes need and the run has not.
RunSpec placed(RunSpec run, Takes takes, DeviceUse use = DeviceUse::kRun,
               Ranks ranks = Ranks::kRefused);

// All runs of `grid`, checked and with placed() applied.
std::vector<RunSpec> runs_of(const RunGrid& grid, Takes takes, DeviceUse use = DeviceUse::kRun,
                             Ranks ranks = Ranks::kRefused);
// Returns the first of runs_of(), for a grid with one value for each field.
RunSpec run_of(const RunGrid& grid, Takes takes, DeviceUse use = DeviceUse::kRun,
               Ranks ranks = Ranks::kRefused);

// The tables of `doctor` for the device: every ceiling that can be measured, in about ten seconds
// on a CPU, two on a GPU. The device is one that computes quickly. Errors as make_device().
std::vector<Table> ceiling_tables(const RunSpec& run);

// The float64 reference device for a run, without a memory limit.
std::unique_ptr<Device> make_reference(const RunSpec& run);

// The memory limit of `place`, else the memory of its device by `environment` (environment_of());
// 0: not known.
std::int64_t memory_of(const Place& place, const Json& environment);
// Returns `place`. A CPU's without a limit gets nine tenths of the memory as its limit: beyond it
// the machine would swap or kill the process instead of failing the allocation.
Place with_limit(Place place, const Json& environment);

// The traits of the place's device, for predictions without running on it.
DeviceTraits traits_of(const Place& place);

// The tables of `doctor --ceilings` for a CPU: multiply-adds, memory, the matrix products of
// training; errors as make_device().
std::vector<Table> cpu_ceiling_tables(const RunSpec& run);

}  // namespace tracestep::cli
