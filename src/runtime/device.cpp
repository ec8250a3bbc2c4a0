#include "runtime/device.h"

#include <bit>

#include "runtime/communicator.h"

namespace tracestep {
namespace {

constexpr std::int64_t kMostAlignment = 512;  // no kernel needs more

class HostMarks final : public Marks {
 public:
  explicit HostMarks(std::size_t count) : times_(count, 0) {}
  void set(std::size_t i) override { times_[i] = now_ns(); }
  std::int64_t between_ns(std::size_t i, std::size_t j) override { return times_[j] - times_[i]; }

 private:
  std::vector<std::int64_t> times_;
};

}  // namespace

PreparedLaunch prepare_at(Device& device, const OpDef& op, const Attrs& attrs,
                          std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                          std::span<std::byte> workspace) {
  KernelSpec spec{.op = &op, .attrs = attrs};
  spec.workspace_bytes = static_cast<std::int64_t>(workspace.size());
  PreparedLaunch out;
  const auto add = [](const TensorRef& x, std::vector<OperandSpec>& specs,
                      std::vector<void*>& addresses) {
    const auto address = std::bit_cast<std::int64_t>(x.data);
    specs.push_back({x.dtype, x.shape, x.strides, alignment_at(kMostAlignment, address)});
    addresses.push_back(x.data);
  };
  for (const TensorRef& x : inputs) add(x, spec.inputs, out.inputs);
  for (const TensorRef& y : outputs) add(y, spec.outputs, out.outputs);
  out.workspace = workspace.data();
  out.kernel = device.prepare(std::move(spec));
  return out;
}

std::unique_ptr<Outbox> Device::make_outbox(std::span<const std::size_t> /*bytes*/) {
  return nullptr;
}

std::unique_ptr<LaneEvents> Device::make_lane_events(std::size_t /*count*/) {
  return nullptr;
}

LaunchContext Device::context(int lane) {
  if (group_ != nullptr) group_->use_lane(lane);
  return {lane == 0 ? stream() : stream_beside(lane), group_};
}

std::unique_ptr<Marks> Device::make_marks(std::size_t count) {
  return std::make_unique<HostMarks>(count);
}

}  // namespace tracestep
