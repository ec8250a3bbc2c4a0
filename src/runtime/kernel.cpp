#include "runtime/kernel.h"

#include "base/error.h"

namespace tracestep {
namespace {

std::vector<TensorRef> refs_of(const std::vector<OperandSpec>& operands) {
  std::vector<TensorRef> out;
  for (const OperandSpec& x : operands) out.push_back({nullptr, x.dtype, x.shape, x.strides});
  return out;
}

void place(std::vector<TensorRef>& refs, std::span<void* const> addresses) {
  for (std::size_t i = 0; i < refs.size(); ++i) refs[i].data = addresses[i];
}

class StatelessKernel final : public PreparedKernel {
 public:
  StatelessKernel(KernelSpec spec, Kernel kernel) : call_(std::move(spec)), kernel_(kernel) {}
  void launch(const LaunchOperands& operands, const LaunchContext& context) override {
    kernel_(call_.at(operands, context));
  }

 private:
  BoundCall call_;
  const Kernel kernel_;
};

}  // namespace

BoundCall::BoundCall(KernelSpec spec)
    : spec_(std::move(spec)), inputs_(refs_of(spec_.inputs)), outputs_(refs_of(spec_.outputs)) {}

KernelCall BoundCall::at(const LaunchOperands& operands, const LaunchContext& context) {
  place(inputs_, operands.inputs);
  place(outputs_, operands.outputs);
  return {*spec_.op,
          spec_.attrs,
          inputs_,
          outputs_,
          std::span(static_cast<std::byte*>(operands.workspace),
                    static_cast<std::size_t>(spec_.workspace_bytes)),
          context.stream,
          context.group};
}

std::unique_ptr<PreparedKernel> KernelTable::prepare(KernelSpec spec,
                                                     const LaunchContext& context) const {
  const auto found = entries_.find(spec.op->name);
  TRACESTEP_CHECK(found != entries_.end(), "{} has no kernel to prepare", spec.op->name);
  const Entry& entry = found->second;
  if (entry.planned != nullptr) return entry.planned(std::move(spec), context);
  return bind_kernel(std::move(spec), entry.kernel);
}

std::unique_ptr<PreparedKernel> bind_kernel(KernelSpec spec, Kernel kernel) {
  return std::make_unique<StatelessKernel>(std::move(spec), kernel);
}

}  // namespace tracestep
