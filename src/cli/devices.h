// From what the command line says of a run to one that this build and machine can do. Concrete back
// ends are named only here.
#pragma once

#include <initializer_list>
#include <vector>

#include "planning/device_traits.h"
#include "session/devices.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

// The devices of this build, for make_device().
void register_devices();

// What a command does with the device: a plan needs none to be there.
enum class DeviceUse { kRun, kPlan };

// Error{kUsage} for names that mean nothing (with the nearest one) and for devices other than
// `usable`, which the command can do its work on; Error{kDevice} for devices that this build or
// this machine does not have. Cheap: nothing is started.
void check_device(const RunSpec& run, std::initializer_list<const char*> usable,
                  DeviceUse use = DeviceUse::kRun);
// The run with the CPU threads that it will have, its device checked: --threads, else
// OMP_NUM_THREADS, else all allowed cores.
RunSpec placed(RunSpec run, std::initializer_list<const char*> usable,
               DeviceUse use = DeviceUse::kRun);

// The runs that flags ask for, checked and placed.
std::vector<RunSpec> runs_of(const RunGrid& grid, std::initializer_list<const char*> usable,
                             DeviceUse use = DeviceUse::kRun);
// The same for flags that say one.
RunSpec run_of(const RunGrid& grid, std::initializer_list<const char*> usable,
               DeviceUse use = DeviceUse::kRun);

// The oracle for a run: its one precision, no limit.
std::unique_ptr<Device> make_reference(const RunSpec& run);

// Traits of the device asked for, for predictions without a device.
DeviceTraits traits_of(const Place& place);

}  // namespace tracestep::cli
