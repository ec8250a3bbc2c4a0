// Times of products of two matrices by their sizes, measured on a grid and for sizes that steps
// have: a GPU's library has many kernels for a product and takes another one from size to size,
// which no rate per FLOP describes.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/predict/kernel_work.h"

namespace tracestep {

struct MeasuredProduct {
  std::string kernel;  // KernelWork::kernel
  ProductShape shape = {};
  double us = 0;
};

class ProductTimes {
 public:
  // `sized`: of sizes apart from the grid's. `multiprocessors`: of the device; 0: not known.
  // Errors: kInput when the grid's shapes of a kernel are not all combinations of their sizes.
  explicit ProductTimes(std::span<const MeasuredProduct> grid,
                        std::span<const MeasuredProduct> sized = {},
                        std::int64_t multiprocessors = 0);

  // Between sizes the time for a unit of work is interpolated, in the logarithms of M, N, K and of
  // the time; above the largest size it stays what it was there. nullopt: the kernel was not
  // measured, or a size is below the smallest.
  std::optional<double> us(const std::string& kernel, const ProductShape& shape) const;
  // True if the kernel was measured, but not with these sizes.
  bool interpolates(const std::string& kernel, const ProductShape& shape) const;

 private:
  struct Grid {
    bool is_in_waves = false;
    std::array<std::vector<std::int64_t>, 3> sizes;  // of M, N and K, ascending
    std::vector<double> log_us_per_unit;             // [M,N,K]
  };

  // FLOPs; of float32, where multiprocessors are known, their geometric mean with those of whole
  // waves: all multiprocessors compute a tile of the result, or two each, as long as there are any
  // left.
  double work(const Grid& grid, const ProductShape& shape) const;

  std::optional<double> interpolated_us(const Grid& grid, const ProductShape& shape) const;

  std::int64_t multiprocessors_;
  std::map<std::string, Grid> grids_;
  std::map<std::pair<std::string, ProductShape>, double> measured_us_;
};

}  // namespace tracestep
