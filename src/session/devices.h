// Devices that a run can name, and how ranks are grouped. The program's entry point (the command
// line, or a test) registers them; this folder and the layers below name no concrete back end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/rank_devices.h"
#include "run/run_spec.h"

namespace tracestep {

// Makes a device for a run, from the run's place and, as far as the device depends on it (tf32),
// its precision.
using DeviceFactory = std::function<std::unique_ptr<Device>(const RunSpec&)>;

// Registers how devices of a name are made, or replaces what was registered. `name`: the part of
// Place::device before the colon ("cuda").
void register_device(const std::string& name, DeviceFactory make);
// Makes the run's device. Throws Error{kUsage} ("device") for an unknown name, and as the factory.
std::unique_ptr<Device> make_device(const RunSpec& spec);

// Registers how ranks are connected; a later call replaces the factory.
void register_group(GroupFactory make);
// Makes this process's communicators of a new group. Error{kUsage}: no factory was registered.
std::vector<std::unique_ptr<Communicator>> make_group(Device& first, int ranks);
// Returns `first`, and new devices for the other ranks of this process if ranks share the run and
// the device computes.
RankDevices make_rank_devices(Device& first, const RunSpec& spec);

}  // namespace tracestep
