// The energy of steps: measured by a device's counter while a step runs again and again, and
// predicted for other steps from their time and from what they compute and move.
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

// A move of a device's energy counter, as the host saw it.
struct EnergyTick {
  std::int64_t ns = 0;
  double joules = 0;
};
// From the first move to the last; nullopt: they are not far enough apart to say.
std::optional<double> watts_between(const std::vector<EnergyTick>& ticks);

// Reads the counter of a device, beside its work, until it is destroyed.
class PowerMeter {
 public:
  // `device` must outlive it.
  explicit PowerMeter(const Device& device);

  // The mean power so far; nullopt: the device has no counter, or it moved too seldom.
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

// Energy grows with the time of a step, that of its kernels, the FLOPs of its products and the
// bytes that it moves to and from memory, at rates found from the steps of a calibration whose
// power was measured.
class EnergyModel {
 public:
  explicit EnergyModel(const Calibration& calibration);

  // The energy of a step of `ms`, in `busy_ms` of which kernels run, whose launches have these
  // amounts; 0: nothing was measured with such products.
  double joules(const Precision& precision, double ms, double busy_ms,
                const Efforts& amounts) const;

 private:
  std::map<ProductKind, Rates> rates_;
};

// Adds `count` launches to the amounts of their step, for joules().
void add_amounts(KernelClass kind, const Efforts& launch, double count, Efforts& amounts);

}  // namespace tracestep
