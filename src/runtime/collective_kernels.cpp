#include "runtime/collective_kernels.h"

#include <cstring>

#include "base/error.h"
#include "ops/collective_sizes.h"
#include "runtime/communicator.h"

namespace tracestep {
namespace {

void all_reduce(const KernelCall& call) {
  call.group->all_reduce(call.inputs[0], call.outputs[0]);
}

void reduce_scatter(const KernelCall& call) {
  call.group->reduce_scatter(call.inputs[0], call.outputs[0]);
}

void all_gather(const KernelCall& call) {
  call.group->all_gather(call.inputs[0], call.outputs[0]);
}

void own_part_in_host_memory(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &part = call.outputs[0];
  const OwnPart own = own_part_of(x.count(), call.group->ranks(), call.group->rank());
  const std::size_t size = size_of(x.dtype);
  const std::size_t bytes = static_cast<std::size_t>(own.count) * size;
  const std::size_t padding = static_cast<std::size_t>(part.count()) * size - bytes;
  if (bytes > 0) {
    std::memcpy(part.data, x.as<std::byte>() + static_cast<std::size_t>(own.first) * size, bytes);
  }
  if (padding > 0) std::memset(part.as<std::byte>() + bytes, 0, padding);
}

template <Kernel kernel>
std::unique_ptr<PreparedKernel> prepare_for_group(KernelSpec spec, const LaunchContext& context) {
  const std::int64_t ranks = spec.attrs.integer("ranks");
  if (context.group == nullptr || context.group->ranks() != ranks) {
    fail_usage(spec.op->name, "the program is for a group of {} ranks, and the device is one of {}",
               ranks, context.group == nullptr ? 1 : context.group->ranks());
  }
  return bind_kernel(std::move(spec), kernel);
}

}  // namespace

void add_collective_kernels(KernelTable& table) {
  add_group_kernels(table);
  table.add_planned("own_part", prepare_for_group<own_part_in_host_memory>);
}

void add_group_kernels(KernelTable& table) {
  table.add_planned("all_reduce", prepare_for_group<all_reduce>);
  table.add_planned("reduce_scatter", prepare_for_group<reduce_scatter>);
  table.add_planned("all_gather", prepare_for_group<all_gather>);
}

}  // namespace tracestep
