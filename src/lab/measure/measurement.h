// What every measurement begins with: a device that is made for it, and a model in its precision.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/signals.h"
#include "runtime/device.h"
#include "train/step_program.h"

namespace tracestep {

using DeviceFactory = std::function<std::unique_ptr<Device>()>;

// Gives the model the precision of this name (base/precision.h); Error{kUsage} for others.
void apply_precision(ModelConfig& model, std::string_view precision);

}  // namespace tracestep
