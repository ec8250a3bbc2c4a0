// The interface of devices that count the energy they use; a device implements it besides Device.
#pragma once

#include <optional>

namespace tracestep {

class EnergyCounter {
 public:
  virtual ~EnergyCounter() = default;
  // Reads DeviceFacts::energy_j alone, which is faster. Any thread may call it.
  virtual std::optional<double> energy_j() const = 0;
};

}  // namespace tracestep
