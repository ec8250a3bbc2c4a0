// From a device name of the command line to a device. Concrete back ends are named only here.
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>

#include "cli/options.h"
#include "runtime/device.h"

namespace tracestep::cli {

// What a command does with the device: a plan needs none to be there.
enum class DeviceUse { kRun, kPlan };

// Error{kUsage} for names that mean nothing (with the nearest one) and for devices other than
// `usable`, which the command can do its work on; Error{kDevice} for devices that this build or
// this machine does not have. Cheap: nothing is started.
void check_device(const RunOptions& run, std::initializer_list<const char*> usable,
                  DeviceUse use = DeviceUse::kRun);

// A fresh device with the threads and the memory limit of `run`, for `precision` (empty: the first
// one of `run`). Errors as check_device() for any device.
std::unique_ptr<Device> make_device(const RunOptions& run, std::string_view precision = {});

// The CPU threads of this run: --threads, else OMP_NUM_THREADS, else all allowed cores.
int threads_of(const RunOptions& run);

// Traits of the device asked for, for predictions without a device.
DeviceTraits traits_of(const RunOptions& run);

}  // namespace tracestep::cli
