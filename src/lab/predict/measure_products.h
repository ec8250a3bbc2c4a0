// Measures products of two matrices on a grid of sizes, for ProductTimes.
#pragma once

#include <compare>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/signals.h"
#include "lab/predict/product_times.h"
#include "runtime/device.h"

namespace tracestep {

// A linear layer that maps `rows` tokens from `in` to `out` values.
struct LinearLayer {
  std::int64_t rows = 0, in = 0, out = 0;

  auto operator<=>(const LinearLayer&) const = default;
};
// Returns the linear layer that has this product in forward or backward; nullopt: it is of no layer
// that is measured here.
std::optional<LinearLayer> layer_of(const std::string& kernel, const ProductShape& shape);

// A grid of linear layers: all combinations of rows, width of the input and width of the output.
struct ProductGrid {
  std::vector<std::int64_t> rows, widths;
};
// Returns the grid for a dtype: from 192 to 5,632 rows and from 384 to 9,216 in width, all
// multiples of 64 like most models' sizes, but none of the presets' own. float32 has few sizes,
// because they take long; between them ProductTimes counts waves of tiles.
const ProductGrid& product_grid(DType dtype);
std::vector<LinearLayer> layers_of(const ProductGrid& grid);

// True if measure_products() of this dtype measures the kernel.
bool is_product_of(const std::string& kernel, DType dtype);

// Times the products of these layers, forward and backward, alone and added to an existing result.
// Each is timed after a warm-up run, on random elements. Memory: the operands and results of the
// largest layer, less than a GiB for product_grid(). Throws OutOfMemory.
std::vector<MeasuredProduct> measure_products(Device& device, DType dtype,
                                              std::span<const LinearLayer> layers,
                                              const StopSignal* stop = nullptr);

}  // namespace tracestep
