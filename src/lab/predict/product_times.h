// Predicts times of matrix products from times measured on a grid of sizes and at sizes that steps
// have. A GPU's library chooses among many kernels by size, so one rate per FLOP is not enough.
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
  // Times by the products of `grid`. `sized`: products at sizes outside the grid.
  // `multiprocessors`: of the device; 0: not known. Throws Error{kInput} if the shapes of a kernel
  // on the grid are not all combinations of their sizes.
  explicit ProductTimes(std::span<const MeasuredProduct> grid,
                        std::span<const MeasuredProduct> sized = {},
                        std::int64_t multiprocessors = 0);

  // Returns the time of a product. Between grid sizes the time per unit of work is interpolated, in
  // the logarithms of M, N, K and of the time; above the largest size it stays constant. nullopt:
  // the kernel was not measured, or a size is below the smallest.
  std::optional<double> us(const std::string& kernel, const ProductShape& shape) const;
  // True if the kernel was measured at other sizes only, so that us() interpolates.
  bool interpolates(const std::string& kernel, const ProductShape& shape) const;

 private:
  struct Grid {
    bool is_in_waves = false;
    std::array<std::vector<std::int64_t>, 3> sizes;  // The sizes M, N and K of the grid, ascending.
    std::vector<double> log_us_per_unit;             // [M,N,K]
  };

  // Returns the work of a product: its FLOPs. For float32 with a known number of multiprocessors,
  // it is the geometric mean of the FLOPs and those of whole waves (a wave is one or two tiles of
  // the result on each multiprocessor).
  double work(const Grid& grid, const ProductShape& shape) const;

  std::optional<double> interpolated_us(const Grid& grid, const ProductShape& shape) const;

  std::int64_t multiprocessors_;
  std::map<std::string, Grid> grids_;
  std::map<std::pair<std::string, ProductShape>, double> measured_us_;
};

}  // namespace tracestep
