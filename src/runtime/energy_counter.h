// An interface, besides Device, of devices that count the energy they use.
#pragma once

#include <optional>

namespace tracestep {

class EnergyCounter {
 public:
  virtual ~EnergyCounter() = default;
  // DeviceFacts::energy_j alone, which is read more quickly; from any thread.
  virtual std::optional<double> energy_j() const = 0;
};

}  // namespace tracestep
