// Products whose sizes no grid has: a library takes another kernel from size to size, so what is
// interpolated for one of them may be half as long again. Timing it alone takes milliseconds.
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

// The products of a step that was calibrated, and those of a program.
std::set<NamedProduct> products_of(const CalibratedStep& step);
std::set<NamedProduct> products_of(const Program& program);

struct SizedProducts {
  std::vector<MeasuredProduct> measured;
  // The median ratio of measured times to those of the calibration's grid; far above 1, the device
  // was busy with other work. 1 where the grid has no time.
  double ratio = 1;
};
// Times those of `wanted` that the calibration has a grid for and not the size, and with each the
// other products of its layer; a device is made only where there are any. Left out are products of
// more than 2 TFLOP, whose time for a FLOP hardly depends on their sizes, and all of them where
// their operands find no memory.
SizedProducts measure_sized_products(const std::function<std::unique_ptr<Device>()>& make_device,
                                     const std::set<NamedProduct>& wanted,
                                     const Calibration& calibration,
                                     const StopSignal* stop = nullptr);

}  // namespace tracestep
