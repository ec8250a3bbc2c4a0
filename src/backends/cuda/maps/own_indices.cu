// own_indices: which indices are in this rank's part, and where. An index out of range counts as
// another rank's.
#include "backends/cuda/kernels.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/maps/indices.cuh"
#include "ops/collective_sizes.h"
#include "runtime/communicator.h"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 8;  // blocks of kThreads threads per multiprocessor

// Writes to `own` the index in this rank's part, else 0, and to `mine` 1, else 0; both may be null.
__global__ void __launch_bounds__(kThreads)
    own_indices_kernel(Predecessors before, const std::int64_t* indices, std::int64_t* own,
                       float* mine, std::int64_t count, OwnPart part, std::int64_t bound,
                       FaultPlace faults) {
  before.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const std::int64_t at = checked_index(indices[i], bound, faults) - part.first;
    const bool is_mine = at >= 0 && at < part.count;
    if (own != nullptr) own[i] = is_mine ? at : 0;
    if (mine != nullptr) mine[i] = is_mine ? 1.0f : 0.0f;
  }
}

void own_indices(const KernelCall& call) {
  const TensorRef& indices = call.inputs[0];
  const RankGroup group = group_of(call.attrs);
  const std::int64_t bound = call.attrs.integer("count"), count = indices.count();
  const OwnPart part = own_part_of(bound, group.ranks, group.index_of(call.group->rank()));
  const Grid grid{.blocks = blocks_for(call, count, kThreads, kResident), .threads = kThreads};
  launch(call, grid, own_indices_kernel, indices.as<const std::int64_t>(),
         call.outputs[0].as<std::int64_t>(), call.outputs[1].as<float>(), count, part, bound,
         faults_of(call));
}

}  // namespace

void add_own_indices_kernel(KernelTable& table) {
  table.add("own_indices", own_indices);
}

}  // namespace tracestep::cuda
