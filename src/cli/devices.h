// Checks that this build and machine have the device of a run, and fills in its threads. Concrete
// back ends are named only here.
#pragma once

#include <initializer_list>
#include <vector>

#include "planning/device_traits.h"
#include "session/devices.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

// Registers the devices of this build for make_device().
void register_devices();

// What a command does with the device: kRun needs it to be present, kPlan does not.
enum class DeviceUse { kRun, kPlan };

// Error{kUsage} for unknown names (with the nearest one) and for devices that the command does not
// support (not in `usable`); Error{kDevice} for devices that this build or this machine does not
// have. Cheap: no device is started.
void check_device(const RunSpec& run, std::initializer_list<const char*> usable,
                  DeviceUse use = DeviceUse::kRun);
// The run with its device checked and its CPU threads filled in: --threads, else OMP_NUM_THREADS,
// else all allowed cores.
RunSpec placed(RunSpec run, std::initializer_list<const char*> usable,
               DeviceUse use = DeviceUse::kRun);

// All runs of `grid`, checked and with placed() applied.
std::vector<RunSpec> runs_of(const RunGrid& grid, std::initializer_list<const char*> usable,
                             DeviceUse use = DeviceUse::kRun);
// The same for a grid of one run.
RunSpec run_of(const RunGrid& grid, std::initializer_list<const char*> usable,
               DeviceUse use = DeviceUse::kRun);

// The float64 reference device for a run, without a memory limit.
std::unique_ptr<Device> make_reference(const RunSpec& run);

// The traits of the place's device, for predictions without running on it.
DeviceTraits traits_of(const Place& place);

}  // namespace tracestep::cli
