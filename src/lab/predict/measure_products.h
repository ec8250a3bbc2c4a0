// Measures products of two matrices on a grid of sizes, for ProductTimes.
#pragma once

#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/signals.h"
#include "lab/predict/product_times.h"
#include "runtime/device.h"

namespace tracestep {

// The products of linear layers, forward and backward, alone and added to what is there, for all
// combinations of rows, width of the input and width of the output.
struct ProductGrid {
  std::vector<std::int64_t> rows, widths;
};
// From 192 rows to 5,632 and from 384 wide to 9,216: multiples of 64, as those of most models are,
// but none of the presets' own sizes. Of float32 few, which take long: what is between them, waves
// of tiles tell (ProductTimes).
const ProductGrid& product_grid(DType dtype);

// Whether measure_products() of this dtype measures the kernel.
bool is_product_of(const std::string& kernel, DType dtype);

// Each is timed after a run to warm up, on random elements.
// Memory: the operands and results of the largest layer, less than a GiB on product_grid().
// Throws OutOfMemory.
std::vector<MeasuredProduct> measure_products(Device& device, DType dtype, const ProductGrid& grid,
                                              const StopSignal* stop = nullptr);

}  // namespace tracestep
