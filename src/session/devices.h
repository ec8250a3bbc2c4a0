// The devices that a run can name, and how ranks are grouped. The program's entry point (the
// command line, a test) registers them; nothing in this folder or the layers below it names a
// concrete back end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/rank_devices.h"
#include "run/run_spec.h"

namespace tracestep {

// Makes a new device for a run, from its place and, where the device decides it (tf32), its
// precision.
using DeviceFactory = std::function<std::unique_ptr<Device>(const RunSpec&)>;

// `name`: the part of Place::device before the colon ("cuda"). Registering the name again replaces
// the factory.
void register_device(const std::string& name, DeviceFactory make);
// Error{kUsage} naming "device" when no device has that name; also throws the factory's errors.
std::unique_ptr<Device> make_device(const RunSpec& spec);

// How ranks are connected: registering again replaces the factory.
void register_group(GroupFactory make);
// This process's communicators of a new group. Error{kUsage} when no factory was registered.
std::vector<std::unique_ptr<Communicator>> make_group(Device& first, int ranks);
// `first` and, where ranks share the run and the device computes, new devices for the other ranks
// of this process, made for the same run.
RankDevices make_rank_devices(Device& first, const RunSpec& spec);

}  // namespace tracestep
