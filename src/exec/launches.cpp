#include "exec/launches.h"

#include <algorithm>

#include "analysis/cost.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

void check_support(const Program& program, const Node& node, const Device& device) {
  if (!device.has_kernel(*node.op)) {
    fail_usage(*node.op, "has no kernel on {}{}", device.name(),
               node.op->kernel_class == KernelClass::kCollective ? "; there ranks cannot run it"
                                                                 : "; give it a decomposition");
  }
  for (const auto* list : {&node.inputs, &node.outputs}) {
    for (ValueId v : *list) {
      const DType dtype = program.type(v).dtype;
      if (!device.supports(dtype)) {
        fail_usage(*node.op, "{} is not supported on {}", name_of(dtype), device.name());
      }
    }
  }
}

class Preparation {
 public:
  Preparation(const Program& program, const BufferPlan& buffer_plan, Device& device)
      : program_(program),
        buffer_plan_(buffer_plan),
        device_(device),
        alignment_(device.allocator().block_alignment()) {}

  std::vector<Launch> run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (buffer_plan_.runs[i]) describe(static_cast<NodeId>(i));
    }
    device_.compile(specs_);
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      launches_[i].call.kernel = device_.prepare(std::move(specs_[i]));
    }
    for (const Launch& launch : launches_) launch.call.kernel->tune(device_.allocator());
    return std::move(launches_);
  }

 private:
  void describe(NodeId id) {
    const Node& node = program_.node(id);
    check_support(program_, node, device_);
    Launch out;
    out.node = id;
    out.workspace_bytes = workspace_bytes(program_, node, device_.traits());
    TRACESTEP_CHECK(
        out.workspace_bytes == 0 || buffer_plan_.turns[static_cast<std::size_t>(id)].lane == 0,
        "{} has a workspace, which lives on lane 0 alone", node.op->name);
    KernelSpec spec{.op = node.op, .attrs = node.attrs, .workspace_bytes = out.workspace_bytes};
    for (ValueId v : node.inputs) add(v, program_.value(v).layout, out.inputs, spec.inputs);
    for (ValueId v : node.outputs) {
      add(v, *buffer_plan_.layout_of(program_, v), out.outputs, spec.outputs);
    }
    out.call.inputs.resize(out.inputs.size());
    out.call.outputs.resize(out.outputs.size());
    launches_.push_back(std::move(out));
    specs_.push_back(std::move(spec));
  }

  void add(ValueId id, const Layout& layout, std::vector<Slot>& slots,
           std::vector<OperandSpec>& specs) const {
    const Value& v = program_.value(id);
    const std::int64_t offset = layout.offset * static_cast<std::int64_t>(size_of(v.type.dtype));
    slots.push_back({buffer_plan_.buffer_of[static_cast<std::size_t>(id)], offset});
    specs.push_back({v.type.dtype, v.type.shape, layout.strides,
                     alignment_at(alignment_, offset + offset_in_block(id))});
  }

  // Returns how many bytes lie before the value's buffer in the allocation that has the buffer.
  std::int64_t offset_in_block(ValueId id) const {
    const Buffer* buffer = buffer_plan_.buffer(id);
    if (buffer == nullptr) return 0;
    const Value& owner = program_.value(buffer->owner);
    return owner.part.offset * static_cast<std::int64_t>(size_of(owner.type.dtype));
  }

  const Program& program_;
  const BufferPlan& buffer_plan_;
  Device& device_;
  const std::int64_t alignment_;
  std::vector<Launch> launches_;
  std::vector<KernelSpec> specs_;  // of the launches
};

void place_all(std::span<const Slot> slots, std::span<void* const> buffers,
               std::vector<void*>& addresses) {
  std::ranges::transform(slots, addresses.begin(), [&](const Slot& slot) -> void* {
    if (slot.buffer < 0) return nullptr;
    return static_cast<std::byte*>(buffers[static_cast<std::size_t>(slot.buffer)]) +
           slot.offset_bytes;
  });
}

}  // namespace

void Launch::place(std::span<void* const> buffers) {
  place_all(inputs, buffers, call.inputs);
  place_all(outputs, buffers, call.outputs);
}

std::vector<Launch> prepare_launches(const Program& program, const BufferPlan& buffer_plan,
                                     Device& device) {
  return Preparation(program, buffer_plan, device).run();
}

}  // namespace tracestep
