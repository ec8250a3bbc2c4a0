// The kernel of a back end as a function, and the table of a back end's kernels.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ir/op_def.h"
#include "runtime/prepared_kernel.h"
#include "runtime/tensor_ref.h"

namespace tracestep {

struct KernelCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const TensorRef> inputs;  // layouts the op record accepts
  // Contiguous, or with strides that the op record writes; may share storage with a donated input.
  std::span<const TensorRef> outputs;
  std::span<std::byte> workspace;  // as many bytes as workspace_bytes() says, uninitialised
  void* stream = nullptr;          // Device::stream() of the device that runs it
  Communicator* group = nullptr;   // Device::group() of the same; nullptr: it runs alone
};

// Checks return codes only: types and layouts were checked when the program was built. Throws
// DeviceError, or Error{kUsage} for an index out of range.
using Kernel = void (*)(const KernelCall&);

// A call without the addresses of its operands.
class BoundCall {
 public:
  explicit BoundCall(KernelSpec spec);
  // The returned call is valid until the next at().
  KernelCall at(const LaunchOperands& operands, const LaunchContext& context);

 private:
  KernelSpec spec_;
  std::vector<TensorRef> inputs_, outputs_;
};

// A kernel that follows a plan made beforehand.
template <class Plan>
class PlannedKernel final : public PreparedKernel {
 public:
  using Run = void (*)(const KernelCall&, const Plan&);
  PlannedKernel(KernelSpec spec, Plan plan, Run run)
      : call_(std::move(spec)), plan_(std::move(plan)), run_(run) {}
  void launch(const LaunchOperands& operands, const LaunchContext& context) override {
    run_(call_.at(operands, context), plan_);
  }

 private:
  BoundCall call_;
  const Plan plan_;
  const Run run_;
};

class KernelTable {
 public:
  // Adds the kernels of one file.
  using Family = void (*)(KernelTable&);
  using Prepare = std::unique_ptr<PreparedKernel> (*)(KernelSpec, const LaunchContext&);

  KernelTable() = default;
  explicit KernelTable(std::span<const Family> families) {
    for (const Family family : families) family(*this);
  }

  // Adds a kernel that needs no plan.
  void add(std::string_view op, Kernel kernel) { entries_[std::string(op)].kernel = kernel; }
  void add_planned(std::string_view op, Prepare planned) {
    entries_[std::string(op)].planned = planned;
  }

  bool contains(std::string_view op) const { return entries_.contains(op); }
  // The table must contain the op. `context`: the stream that the kernel will be launched on.
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec, const LaunchContext& context) const;

 private:
  struct Entry {  // one of the two
    Kernel kernel = nullptr;
    Prepare planned = nullptr;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

// A kernel that needs no plan, ready to be launched.
std::unique_ptr<PreparedKernel> bind_kernel(KernelSpec spec, Kernel kernel);

}  // namespace tracestep
