// The kernels of tiled_sum.cpp for a GPU: a block for each tile of rows, which walks over the
// columns; x is read once, in both directions.
#include "backends/cuda/launch.cuh"
#include "tiled_sum.h"

using namespace tracestep;

namespace {

constexpr unsigned kThreads = 128;

// x: [R,D], w: [D] → y: [R]. Each warp takes rows of the tile in turn; its lanes share a row.
__global__ void tiled_sum_kernel(const float* x, const float* w, float* y, std::int64_t rows,
                                 std::int64_t width) {
  const std::int64_t first = blockIdx.x * kTileRows;
  const std::int64_t end = min(first + kTileRows, rows);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (std::int64_t row = first + warp; row < end; row += kThreads / 32) {
    float sum = 0;
    for (std::int64_t d = lane; d < width; d += 32) sum += w[d] * x[row * width + d];
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_down_sync(0xffffffffU, sum, distance);
    }
    if (lane == 0) y[row] = sum;
  }
}

// dy: [R], x: [R,D], w: [D] → dx: [R,D], partial: [tiles,D]. Each thread has columns of its own, so
// that no two threads add to one partial sum.
__global__ void tiled_sum_grad_kernel(const float* dy, const float* x, const float* w, float* dx,
                                      float* partial, std::int64_t rows, std::int64_t width) {
  const std::int64_t first = blockIdx.x * kTileRows;
  const std::int64_t end = min(first + kTileRows, rows);
  for (std::int64_t d = threadIdx.x; d < width; d += kThreads) {
    float sum = 0;
    for (std::int64_t row = first; row < end; ++row) {
      if (dx != nullptr) dx[row * width + d] = dy[row] * w[d];  // else nobody reads it
      sum += dy[row] * x[row * width + d];
    }
    partial[blockIdx.x * width + d] = sum;
  }
}

cuda::Grid grid_of(std::int64_t rows) {
  return {.blocks = static_cast<unsigned>(tiles_of(rows)), .threads = kThreads};
}

void launch_tiled_sum(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &w = call.inputs[1];
  cuda::launch(call, grid_of(x.shape[0]), tiled_sum_kernel, x.as<float>(), w.as<float>(),
               call.outputs[0].as<float>(), x.shape[0], x.shape[1]);
}

void launch_tiled_sum_grad(const KernelCall& call) {
  const TensorRef &dy = call.inputs[0], &x = call.inputs[1], &w = call.inputs[2];
  cuda::launch(call, grid_of(x.shape[0]), tiled_sum_grad_kernel, dy.as<float>(), x.as<float>(),
               w.as<float>(), call.outputs[0].as<float>(), call.outputs[1].as<float>(), x.shape[0],
               x.shape[1]);
}

}  // namespace

void add_cuda_kernels(KernelTable& table) {
  table.add("tiled_sum", launch_tiled_sum);
  table.add("tiled_sum_grad", launch_tiled_sum_grad);
}
