// Measures products at sizes that the grid lacks. A library changes its kernel from size to size,
// so an interpolated time may be half as long again; timing a product alone takes milliseconds.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/signals.h"
#include "lab/predict/calibration.h"
#include "runtime/device.h"

namespace tracestep {

using NamedProduct = std::pair<std::string, ProductShape>;  // KernelWork's

// Return the products of a calibrated step, and those of a program.
std::set<NamedProduct> products_of(const CalibratedStep& step);
std::set<NamedProduct> products_of(const Program& program);

struct SizedProducts {
  std::vector<MeasuredProduct> measured;
  // The median ratio of the measured times to those that the grid predicts; far above 1, the device
  // was busy with other work. 1 if the grid has no time for any.
  double ratio = 1;
};
// Times those of `wanted` whose kernel is on the calibration's grid but whose size is not, together
// with the other products of the same layer. A device is only made if there are any. Products of
// more than 2 TFLOP are left out, since their time per FLOP hardly depends on size; if memory for
// the operands is lacking, all are left out.
SizedProducts measure_sized_products(const std::function<std::unique_ptr<Device>()>& make_device,
                                     const std::set<NamedProduct>& wanted,
                                     const Calibration& calibration,
                                     const StopSignal* stop = nullptr);

}  // namespace tracestep
