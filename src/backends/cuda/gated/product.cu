// The products with SwiGLU as their epilogue: thread blocks of one warp that loads and two
// warpgroups, each with tiles of its own, which have the tensor cores in turns: while one
// multiplies, the other computes and stores the results of its tile.
#include "backends/cuda/gated/product.h"

#include <algorithm>

#include "backends/cuda/attention/tensor_map.h"
#include "backends/cuda/gated/consumer.cuh"
#include "backends/cuda/predecessors.cuh"

namespace tracestep::cuda {
namespace gated_product {  // not anonymous: other architectures than Hopper use little of it

template <class T, bool kGradient>
__global__ void __launch_bounds__(kThreads, 1)
    gated_product_kernel(Predecessors before, const __grid_constant__ GatedParameters p) {
#ifdef TRACESTEP_HOPPER_CODE
  before.let_next_begin();
  using Layout = GatedLayout<kGradient>;
  extern __shared__ unsigned char dynamic[];
  const std::uint32_t shared = (shared_address(dynamic) + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&p.a, &p.b, &p.gate_up, &p.result}) prefetch_map(map);
    for (int i = 0; i < Layout::kStages; ++i) {
      barrier_init(shared + Layout::kFull + 8 * i, 1);
      barrier_init(shared + Layout::kEmpty + 8 * i, 4 * Layout::kCluster);
    }
    for (int i = 0; i < 4; ++i) barrier_init(shared + Layout::kRead + 8 * i, 1);
    barrier_init_fence();
  }
  __syncthreads();
  if constexpr (Layout::kCluster > 1) cluster_sync();
  before.wait();
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < 4) {
    give_registers<24>();
    if (threadIdx.x == 0) produce_operands<kGradient>(p, shared);
  } else {
    take_registers<240>();
    GatedConsumer<T, kGradient> consumer(p, shared, warp / 4 - 1);
    consumer.run();
  }
  // Neither block of the cluster may end while the other still arrives at its barriers.
  if constexpr (Layout::kCluster > 1) {
    __syncwarp();
    cluster_sync();
  }
#endif
}

}  // namespace gated_product

namespace {

using namespace gated_product;

cudaError_t map_of(DType dtype, const void* data, std::int64_t rows, std::int64_t width,
                   int box_rows, CUtensorMap& map) {
  return encode_tensor_map(
      {.data = data,
       .strides = {.batch = rows * width, .head = rows * width, .row = width},
       .dtype = dtype == DType::kF16 ? AttentionDType::kF16 : AttentionDType::kBF16,
       .rows = static_cast<int>(rows),
       .width = static_cast<int>(width),
       .box_rows = box_rows,
       .box_columns = 64},
      map);
}

// Returns how many thread blocks the device runs at once; 0 if it cannot say.
template <class T, bool kGradient>
int blocks_at_once(const LaunchSize& size) {
  constexpr int kCluster = GatedLayout<kGradient>::kCluster;
  if (kCluster == 1) return multiprocessor_count();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessor_count() / kCluster * kCluster));
  config.blockDim = size.threads;
  config.dynamicSmemBytes = size.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(
      &clusters, reinterpret_cast<const void*>(gated_product_kernel<T, kGradient>), &config);
  return status == cudaSuccess ? kCluster * clusters : 0;
}

template <class T, bool kGradient>
cudaError_t launch_gated(GatedParameters& p, const GatedProductSizes& sizes,
                         const LaunchStream& stream) {
  using Layout = GatedLayout<kGradient>;
  p.row_units = static_cast<int>(sizes.rows / (kM * Layout::kCluster));
  p.units = p.row_units * static_cast<int>(sizes.columns / Layout::kColumns);
  p.blocks = static_cast<int>(sizes.width / kK);
  p.columns = static_cast<int>(sizes.columns);
  auto* kernel = gated_product_kernel<T, kGradient>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, Layout::kBytes);
  if (allowed != cudaSuccess) return allowed;
  LaunchSize size{1, kThreads, Layout::kBytes, Layout::kCluster};
  static const int most = blocks_at_once<T, kGradient>(size);
  if (most == 0) return cudaErrorInvalidConfiguration;
  size.blocks = static_cast<unsigned>(std::min(p.units * Layout::kCluster, most));
  return launch_kernel(stream, size, kernel, p);
}

template <bool kGradient>
cudaError_t launch_gated_of(DType dtype, GatedParameters& p, const GatedProductSizes& sizes,
                            const LaunchStream& stream) {
  return dtype == DType::kF16 ? launch_gated<F16, kGradient>(p, sizes, stream)
                              : launch_gated<BF16, kGradient>(p, sizes, stream);
}

}  // namespace

cudaError_t multiply_gated(const GatedProduct& product, const LaunchStream& stream) {
  constexpr int kTeamRows = GatedLayout<false>::kTeamRows;
  const auto [rows, width, columns] = product.sizes;
  GatedParameters p{};
  p.keeps_gate_up = product.gate_up != nullptr;
  p.keeps_h = product.h != nullptr;
  cudaError_t status = map_of(product.dtype, product.x, rows, width, kM, p.a);
  if (status == cudaSuccess)
    status = map_of(product.dtype, product.w, 2 * columns, width, kN / 2, p.b);
  if (status == cudaSuccess && p.keeps_gate_up)
    status = map_of(product.dtype, product.gate_up, rows, 2 * columns, kTeamRows, p.gate_up);
  if (status == cudaSuccess && p.keeps_h)
    status = map_of(product.dtype, product.h, rows, columns, kTeamRows, p.result);
  return status == cudaSuccess ? launch_gated_of<false>(product.dtype, p, product.sizes, stream)
                               : status;
}

cudaError_t multiply_gated_grad(const GatedProductGrad& product, const LaunchStream& stream) {
  constexpr int kTeamRows = GatedLayout<true>::kTeamRows;
  const auto [rows, width, columns] = product.sizes;
  GatedParameters p{};
  cudaError_t status = map_of(product.dtype, product.dy, rows, width, kM, p.a);
  if (status == cudaSuccess) status = map_of(product.dtype, product.w, width, columns, kK, p.b);
  if (status == cudaSuccess)
    status = map_of(product.dtype, product.gate_up, rows, 2 * columns, kTeamRows, p.gate_up);
  if (status == cudaSuccess)
    status = map_of(product.dtype, product.d_gate_up, rows, 2 * columns, kTeamRows, p.result);
  return status == cudaSuccess ? launch_gated_of<true>(product.dtype, p, product.sizes, stream)
                               : status;
}

}  // namespace tracestep::cuda
