#include "lab/predict/product_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/integers.h"

namespace tracestep {
namespace {

using SizeList = std::vector<std::int64_t>;

std::array<std::int64_t, 3> sizes_of(const ProductShape& s) {
  return {s.m, s.n, s.k};
}

// A tile of a product's result: its size, how many tiles a multiprocessor computes at a time, and
// how much longer its FLOPs take than those of the largest tile. A library is assumed to choose
// from kTiles, which explain the times of an H200 best (docs/predict.md).
struct Tile {
  std::int64_t rows, columns, of_multiprocessor;
  double slowness;
};
constexpr Tile kTiles[] = {{128, 128, 2, 1.0},
                           {128, 128, 1, 1.3},
                           {128, 64, 1, 1.35},
                           {64, 128, 1, 1.35},
                           {64, 64, 1, 1.4}};

std::size_t place_of(std::int64_t size, const SizeList& sizes) {
  return static_cast<std::size_t>(std::ranges::lower_bound(sizes, size) - sizes.begin());
}

// A size between measured ones: the index of the next below, and the part of the way to the next.
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

ProductTimes::ProductTimes(std::span<const MeasuredProduct> measured,
                           std::span<const MeasuredProduct> sized, std::int64_t multiprocessors)
    : multiprocessors_(multiprocessors) {
  for (const auto& products : {measured, sized}) {
    for (const MeasuredProduct& p : products) measured_us_[{p.kernel, p.shape}] = p.us;
  }
  for (const MeasuredProduct& product : measured) {
    const auto sizes = sizes_of(product.shape);
    for (std::size_t i = 0; i < 3; ++i) grids_[product.kernel].sizes[i].push_back(sizes[i]);
  }
  for (auto& [kernel, grid] : grids_) {
    grid.is_in_waves = multiprocessors > 0 && kernel.find(" f32,f32") != std::string::npos;
    std::size_t count = 1;
    for (SizeList& sizes : grid.sizes) {
      std::ranges::sort(sizes);
      sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
      count *= sizes.size();
    }
    grid.log_us_per_unit.assign(count, std::nan(""));
  }
  for (const MeasuredProduct& product : measured) {
    Grid& grid = grids_[product.kernel];
    const auto sizes = sizes_of(product.shape);
    std::size_t at = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      at = at * grid.sizes[i].size() + place_of(sizes[i], grid.sizes[i]);
    }
    grid.log_us_per_unit[at] = std::log(product.us / work(grid, product.shape));
  }
  for (const auto& [kernel, grid] : grids_) {
    if (std::ranges::none_of(grid.log_us_per_unit, [](double x) { return std::isnan(x); }))
      continue;
    fail_input("calibration"_field, "sizes of {} are missing", kernel);
  }
}

double ProductTimes::work(const Grid& grid, const ProductShape& shape) const {
  const double flops = shape.flops();
  if (!grid.is_in_waves) return flops;
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const std::int64_t tiles = ceil_div(shape.m, tile.rows) * ceil_div(shape.n, tile.columns);
    const std::int64_t at_a_time = multiprocessors_ * tile.of_multiprocessor;
    const auto elements =
        static_cast<double>(ceil_div(tiles, at_a_time) * at_a_time * tile.rows * tile.columns);
    least = std::min(least, tile.slowness * elements);
  }
  return std::sqrt(flops * 2 * least * static_cast<double>(shape.k));
}

std::optional<double> ProductTimes::us(const std::string& kernel, const ProductShape& shape) const {
  const auto measured = measured_us_.find({kernel, shape});
  if (measured != measured_us_.end()) return measured->second;
  const auto grid = grids_.find(kernel);
  return grid == grids_.end() ? std::nullopt : interpolated_us(grid->second, shape);
}

bool ProductTimes::interpolates(const std::string& kernel, const ProductShape& shape) const {
  return grids_.contains(kernel) && !measured_us_.contains({kernel, shape});
}

std::optional<double> ProductTimes::interpolated_us(const Grid& grid,
                                                    const ProductShape& shape) const {
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
    if (weight > 0) sum += weight * grid.log_us_per_unit[at];
  }
  return work(grid, shape) * std::exp(sum);
}

}  // namespace tracestep
