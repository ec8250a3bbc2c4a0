// The devices that runs can name. Whoever starts the process fills the list (the command line, a
// test): nothing here or below names a concrete back end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/device.h"
#include "spec/run_spec.h"

namespace tracestep {

// A fresh device for a run: its place, and its precision where that is the device's matter (tf32).
using DeviceFactory = std::function<std::unique_ptr<Device>(const RunSpec&)>;

// `name`: what Place::device says before a colon. A later factory of that name takes its place.
void register_device(const std::string& name, DeviceFactory make);
// Error{kUsage} naming "device" when none is called so; the factory's own errors.
std::unique_ptr<Device> make_device(const RunSpec& spec);

}  // namespace tracestep
