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

std::int64_t index_in_group(const KernelCall& call) {
  return group_of(call.attrs).index_of(call.group->rank());
}

void own_part_in_host_memory(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &part = call.outputs[0];
  const OwnPart own = own_part_of(x.count(), group_of(call.attrs).ranks, index_in_group(call));
  const std::size_t size = size_of(x.dtype);
  const std::size_t bytes = static_cast<std::size_t>(own.count) * size;
  const std::size_t padding = static_cast<std::size_t>(part.count()) * size - bytes;
  if (bytes > 0) {
    std::memcpy(part.data, x.as<std::byte>() + static_cast<std::size_t>(own.first) * size, bytes);
  }
  if (padding > 0) std::memset(part.as<std::byte>() + bytes, 0, padding);
}

void on_first_rank_in_host_memory(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const std::size_t size = size_of(x.dtype), bytes = static_cast<std::size_t>(x.count()) * size;
  if (bytes == 0) return;
  if (index_in_group(call) == 0) {
    std::memmove(y.data, x.data, bytes);
    return;
  }
  constexpr auto kSign = std::byte{0x80};  // the last byte of -0; all others are 0
  std::memset(y.data, 0, bytes);
  for (std::size_t last = size - 1; last < bytes; last += size) y.as<std::byte>()[last] = kSign;
}

template <class T>
void own_indices_as(const KernelCall& call) {
  const TensorRef &indices = call.inputs[0], &own = call.outputs[0], &mine = call.outputs[1];
  const RankGroup group = group_of(call.attrs);
  const std::int64_t count = call.attrs.integer("count");
  const OwnPart part = own_part_of(count, group.ranks, index_in_group(call));
  for (std::int64_t i = 0; i < indices.count(); ++i) {
    const std::int64_t index = indices.as<std::int64_t>()[i];
    if (index < 0 || index >= count) {
      fail_usage(call.op, "index {} is outside [0, {})", index, count);
    }
    const bool is_mine = index >= part.first && index < part.first + part.count;
    if (own.data != nullptr) own.as<std::int64_t>()[i] = is_mine ? index - part.first : 0;
    if (mine.data != nullptr) mine.as<T>()[i] = is_mine ? T{1} : T{0};
  }
}

void own_indices_in_host_memory(const KernelCall& call) {
  return call.attrs.dtype("dtype") == DType::kF64 ? own_indices_as<double>(call)
                                                  : own_indices_as<float>(call);
}

// Prepares `kernel`; throws unless the device's group divides into groups as the attributes say.
template <Kernel kernel>
std::unique_ptr<PreparedKernel> prepare_in_group(KernelSpec spec, const LaunchContext& context) {
  const RankGroup group = group_of(spec.attrs);
  const std::int64_t ranks = context.group == nullptr ? 1 : context.group->ranks();
  if (context.group == nullptr || ranks % (group.ranks * group.stride) != 0) {
    fail_usage(*spec.op, "the program is for a group of {} ranks, and the device is one of {}",
               group.ranks * group.stride, ranks);
  }
  return bind_kernel(std::move(spec), kernel);
}

// A kernel that runs on a subgroup of the group that its launch context has.
class GroupKernel final : public PreparedKernel {
 public:
  GroupKernel(std::unique_ptr<PreparedKernel> kernel, Communicator& group)
      : kernel_(std::move(kernel)), group_(group) {}
  void launch(const LaunchOperands& operands, const LaunchContext& context) override {
    LaunchContext of_group = context;
    of_group.group = &group_;
    kernel_->launch(operands, of_group);
  }

 private:
  const std::unique_ptr<PreparedKernel> kernel_;
  Communicator& group_;
};

template <Kernel kernel>
std::unique_ptr<PreparedKernel> prepare_for_group(KernelSpec spec, const LaunchContext& context) {
  const RankGroup group = group_of(spec.attrs);
  auto prepared = prepare_in_group<kernel>(std::move(spec), context);
  return std::make_unique<GroupKernel>(std::move(prepared), context.group->among(group));
}

}  // namespace

void add_collective_kernels(KernelTable& table) {
  add_group_kernels(table);
  table.add_planned("own_part", prepare_in_group<own_part_in_host_memory>);
  table.add_planned("own_indices", prepare_in_group<own_indices_in_host_memory>);
  table.add_planned("on_first_rank", prepare_in_group<on_first_rank_in_host_memory>);
}

void add_group_kernels(KernelTable& table) {
  table.add_planned("all_reduce", prepare_for_group<all_reduce>);
  table.add_planned("reduce_scatter", prepare_for_group<reduce_scatter>);
  table.add_planned("all_gather", prepare_for_group<all_gather>);
}

}  // namespace tracestep
