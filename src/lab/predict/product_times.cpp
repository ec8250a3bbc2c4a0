#include "lab/predict/product_times.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tracestep {
namespace {

using SizeList = std::vector<std::int64_t>;

std::array<std::int64_t, 3> sizes_of(const ProductShape& s) {
  return {s.m, s.n, s.k};
}

double flops_of(const ProductShape& s) {
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

std::size_t place_of(std::int64_t size, const SizeList& sizes) {
  return static_cast<std::size_t>(std::ranges::lower_bound(sizes, size) - sizes.begin());
}

// The measured size below, and how far it is from there to the next one.
struct GridPlace {
  std::size_t below = 0;
  double part = 0;
};

GridPlace grid_place(std::int64_t size, const SizeList& sizes) {
  if (size >= sizes.back()) return {sizes.size() - 1, 0.0};
  const std::size_t above = place_of(size + 1, sizes);
  const auto low = static_cast<double>(sizes[above - 1]), high = static_cast<double>(sizes[above]);
  return {above - 1, std::log(static_cast<double>(size) / low) / std::log(high / low)};
}

}  // namespace

ProductTimes::ProductTimes(std::span<const MeasuredProduct> measured) {
  for (const MeasuredProduct& product : measured) {
    const auto sizes = sizes_of(product.shape);
    for (std::size_t i = 0; i < 3; ++i) grids_[product.kernel].sizes[i].push_back(sizes[i]);
  }
  for (auto& [kernel, grid] : grids_) {
    std::size_t count = 1;
    for (SizeList& sizes : grid.sizes) {
      std::ranges::sort(sizes);
      sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
      count *= sizes.size();
    }
    grid.log_us_per_flop.assign(count, std::nan(""));
  }
  for (const MeasuredProduct& product : measured) {
    Grid& grid = grids_[product.kernel];
    const auto sizes = sizes_of(product.shape);
    std::size_t at = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      at = at * grid.sizes[i].size() + place_of(sizes[i], grid.sizes[i]);
    }
    grid.log_us_per_flop[at] = std::log(product.us / flops_of(product.shape));
  }
  for (const auto& [kernel, grid] : grids_) {
    if (std::ranges::none_of(grid.log_us_per_flop, [](double x) { return std::isnan(x); }))
      continue;
    throw Error(ErrorCode::kInput, "calibration", fmt::format("sizes of {} are missing", kernel));
  }
}

std::optional<double> ProductTimes::us(const std::string& kernel, const ProductShape& shape) const {
  const auto found = grids_.find(kernel);
  if (found == grids_.end()) return std::nullopt;
  const Grid& grid = found->second;
  const auto sizes = sizes_of(shape);
  std::array<GridPlace, 3> place;
  for (std::size_t i = 0; i < 3; ++i) {
    if (sizes[i] < grid.sizes[i].front()) return std::nullopt;
    place[i] = grid_place(sizes[i], grid.sizes[i]);
  }
  double sum = 0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1;
    std::size_t at = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const bool is_above = (corner >> i & 1U) != 0;
      weight *= is_above ? place[i].part : 1 - place[i].part;
      at = at * grid.sizes[i].size() + place[i].below + (is_above ? 1 : 0);
    }
    if (weight > 0) sum += weight * grid.log_us_per_flop[at];
  }
  return flops_of(shape) * std::exp(sum);
}

}  // namespace tracestep
