// Measures the energy of steps by a device's counter while a step repeats, and predicts it for
// other steps from their time, FLOPs and bytes.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/precision.h"
#include "lab/predict/calibration.h"
#include "runtime/device.h"

namespace tracestep {

// A change of a device's energy counter, at the time when the host saw it.
struct EnergyTick {
  std::int64_t ns = 0;
  double joules = 0;
};
// Returns the mean power from the first to the last change; nullopt: they are too close to say.
std::optional<double> watts_between(const std::vector<EnergyTick>& ticks);

// Reads the energy counter of a device while the device works, until this object is destroyed.
class PowerMeter {
 public:
  // Starts to read the counter of `device`, which must outlive this.
  explicit PowerMeter(const Device& device);

  // Returns the mean power up to now; nullopt: the device has no counter, or it changed too seldom.
  std::optional<double> watts() const;

 private:
  mutable std::mutex mutex_;
  std::vector<EnergyTick> ticks_;
  std::jthread thread_;
};

// The arithmetic in which a precision computes products.
struct ProductKind {
  DType dtype = DType::kF32;
  bool tf32 = false, split = false, float8 = false;

  auto operator<=>(const ProductKind&) const = default;
};

// Models energy as a sum over the time of a step, the time of its kernels, the FLOPs of its
// products and the bytes to and from memory. The rates are fitted to the calibration steps whose
// power was measured.
class EnergyModel {
 public:
  explicit EnergyModel(const Calibration& calibration);

  // Returns the joules of a step that takes `ms`, has kernels running for `busy_ms`, and whose
  // launches have these amounts; 0: no calibrated step has such products.
  double joules(const Precision& precision, double ms, double busy_ms,
                const Efforts& amounts) const;

 private:
  std::map<ProductKind, Rates> rates_;
};

// Adds `count` launches to the amounts of their step, for joules().
void add_amounts(KernelClass kind, const Efforts& launch, double count, Efforts& amounts);

}  // namespace tracestep
