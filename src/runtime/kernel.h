// A back end's kernel as a function, and the table of a back end's kernels.
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
  std::span<const TensorRef> inputs;  // Operands, in layouts that the op's record accepts.
  // Contiguous, or with strides that the op record writes; may share storage with a donated input.
  std::span<const TensorRef> outputs;
  std::span<std::byte> workspace;  // Uninitialised memory of workspace_bytes() bytes.
  void* stream = nullptr;          // Device::stream() of the device that runs the call.
  Communicator* group = nullptr;   // Device::group() of the device; nullptr: it runs alone.
};

// Runs the call. It only checks return codes, since types and layouts were checked when the program
// was built. Throws DeviceError, or Error{kUsage} for an index out of range.
using Kernel = void (*)(const KernelCall&);

// A call that still lacks the addresses of its operands.
class BoundCall {
 public:
  explicit BoundCall(KernelSpec spec);
  // Returns the call with these addresses; it is valid until the next at().
  KernelCall at(const LaunchOperands& operands, const LaunchContext& context);

 private:
  KernelSpec spec_;
  std::vector<TensorRef> inputs_, outputs_;
};

// A prepared kernel that follows a plan which was made beforehand.
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
  // A function that adds the kernels of one source file to a table.
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
  // Prepares a call; the table must contain the op. `context`: has the stream on which the kernel
  // will be launched.
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec, const LaunchContext& context) const;

 private:
  struct Entry {  // One of the two is set.
    Kernel kernel = nullptr;
    Prepare planned = nullptr;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

// Prepares a kernel that needs no plan.
std::unique_ptr<PreparedKernel> bind_kernel(KernelSpec spec, Kernel kernel);

}  // namespace tracestep
