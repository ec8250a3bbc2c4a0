// Times of products of two matrices by their sizes, measured on a grid: a GPU's library has many
// kernels for a product and takes another one from size to size, which no rate per FLOP describes.
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
  // Errors: kInput when the shapes of a kernel are not all combinations of their sizes.
  explicit ProductTimes(std::span<const MeasuredProduct> measured);

  // Between sizes the time per FLOP is interpolated, in the logarithms of M, N, K and of the time;
  // above the largest size it stays what it was there. nullopt: the kernel was not measured, or a
  // size is below the smallest.
  std::optional<double> us(const std::string& kernel, const ProductShape& shape) const;

 private:
  struct Grid {
    std::array<std::vector<std::int64_t>, 3> sizes;  // of M, N and K, ascending
    std::vector<double> log_us_per_flop;             // [M,N,K]
  };

  std::map<std::string, Grid> grids_;
};

}  // namespace tracestep
