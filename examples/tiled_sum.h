// The records of two ops, with kernels for the CPU below and for a GPU in tiled_sum.cu: the
// weighted sum y[r] = Σ_d w[d]·x[r,d], and its gradients by tiles of rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/functions.h"
#include "ops/rules.h"
#include "runtime/kernel.h"

// A tile is computed as a whole. Each tile of rows leaves a partial gradient of w of its own, so
// that tiles need not wait for each other; an ordinary sum adds these up.
constexpr std::int64_t kTileRows = 16, kTileColumns = 32;

constexpr std::int64_t tiles_of(std::int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

// tiled_sum.cu, in builds with the CUDA back end.
void add_cuda_kernels(tracestep::KernelTable& table);

// What runs where there is no kernel: one reduction for each tile.
inline std::vector<tracestep::Val> gradient_by_tiles(const tracestep::OpExpansion& e) {
  using namespace tracestep;
  const Val dy = ops::reshape(e.inputs[0], {e.inputs[1].dim(0), 1});
  const Val terms = ops::mul(dy, e.inputs[1]);
  std::vector<Val> tiles;
  for (std::int64_t row = 0; row < terms.dim(0); row += kTileRows) {
    const std::int64_t end = std::min(row + kTileRows, terms.dim(0));
    tiles.push_back(ops::sum(ops::slice(terms, 0, row, end), {0}, true));
  }
  return {ops::mul(dy, e.inputs[2]), ops::concat(tiles, 0)};
}

inline void register_tiled_sum() {
  using namespace tracestep;
  ops::register_all();
  // dy: [R], x: [R,D], w: [D] → dx: [R,D], partial: [tiles,D]
  register_op({.name = "tiled_sum_grad",
               .doc = "gradients of tiled_sum: dx, and a part of dw for each tile of rows",
               .inputs = {"dy", "x", "w"},
               .outputs = {"dx", "partial"},
               .infer = [](const OpCall& c) -> std::vector<Type> {
                 const Type& x = c.inputs[1];
                 return {x, Type{x.dtype, Shape{tiles_of(x.shape[0]), x.shape[1]}}};
               },
               .decompose = gradient_by_tiles});
  // x: [R,D], w: [D] → y: [R]
  register_op({.name = "tiled_sum",
               .doc = "y[r] = Σ_d w[d]·x[r,d], tile by tile of rows",
               .inputs = {"x", "w"},
               .outputs = {"y"},
               .infer = [](const OpCall& c) -> std::vector<Type> {
                 rules::require_min_rank(c, 0, 2);
                 const Type& x = c.inputs[0];
                 rules::require_shape(c, 1, {x.shape[1]});
                 return {Type{x.dtype, Shape{x.shape[0]}}};
               },
               .gradient = [](const OpExpansion& e) -> std::vector<Val> {
                 const auto grads = e.builder.call(find_op("tiled_sum_grad"),
                                                   {e.output_grads[0], e.inputs[0], e.inputs[1]});
                 return {grads[0], ops::sum(grads[1], {0})};
               },
               .decompose = [](const OpExpansion& e) -> std::vector<Val> {
                 return {ops::sum(ops::mul(e.inputs[0], e.inputs[1]), {1})};
               }});
}

// Calls body(tile, row, column) for all elements of [rows, width], one tile after the other.
template <class Body>
void for_each_tile(std::int64_t rows, std::int64_t width, Body&& body) {
  for (std::int64_t tile = 0; tile < tiles_of(rows); ++tile) {
    const std::int64_t end = std::min((tile + 1) * kTileRows, rows);
    for (std::int64_t left = 0; left < width; left += kTileColumns) {
      const std::int64_t right = std::min(left + kTileColumns, width);
      for (std::int64_t row = tile * kTileRows; row < end; ++row) {
        for (std::int64_t column = left; column < right; ++column) body(tile, row, column);
      }
    }
  }
}

inline void forward_kernel(const tracestep::KernelCall& call) {
  const auto *x = call.inputs[0].as<float>(), *w = call.inputs[1].as<float>();
  auto* y = call.outputs[0].as<float>();
  const std::int64_t rows = call.inputs[0].shape[0], width = call.inputs[0].shape[1];
  std::fill_n(y, rows, 0.0F);
  for_each_tile(rows, width, [=](auto, auto r, auto d) { y[r] += w[d] * x[r * width + d]; });
}

// A result that nobody reads has no memory: dx, where x is no parameter.
inline void backward_kernel(const tracestep::KernelCall& call) {
  const auto *dy = call.inputs[0].as<float>(), *x = call.inputs[1].as<float>(),
             *w = call.inputs[2].as<float>();
  auto *dx = call.outputs[0].as<float>(), *partial = call.outputs[1].as<float>();
  const std::int64_t rows = call.inputs[1].shape[0], width = call.inputs[1].shape[1];
  std::fill_n(partial, tiles_of(rows) * width, 0.0F);
  for_each_tile(rows, width, [=](auto tile, auto r, auto d) {
    if (dx != nullptr) dx[r * width + d] = dy[r] * w[d];
    partial[tile * width + d] += dy[r] * x[r * width + d];
  });
}

inline void add_cpu_kernels(tracestep::KernelTable& table) {
  table.add("tiled_sum", forward_kernel);
  table.add("tiled_sum_grad", backward_kernel);
}
