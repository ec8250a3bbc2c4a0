#include "backends/cpu/cpu_device.h"

#include <cstring>

#include "backends/cpu/ceilings.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/memory_source.h"
#include "backends/cpu/threads.h"
#include "base/cores.h"
#include "planning/needs.h"
#include "runtime/collective_kernels.h"

namespace tracestep {
namespace {

KernelTable make_table() {
  KernelTable table(cpu::kKernelFamilies);
  add_collective_kernels(table);
  return table;
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : threads_{options.threads > 0 ? options.threads : allowed_cores()},
        allocator_(options.guarded ? make_guarded_allocator(name_, source_)
                                   : make_caching_allocator(name_, source_)),
        table_(make_table()) {
    if (options.lent != nullptr) allocator_ = with_lent(std::move(allocator_), *options.lent);
    cpu::require_threads(threads_.count);
    traits_.kind = DeviceKind::kCpu;
    traits_.threads = threads_.count;
    allocator_->set_limit(options.memory_limit);
    if (options.add_kernels) options.add_kernels(table_);
  }

  const std::string& name() const override { return name_; }
  const DeviceTraits& traits() const override { return traits_; }
  Allocator& allocator() override { return *allocator_; }
  bool has_kernel(const OpDef& op) const override { return table_.contains(op.name); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return table_.prepare(std::move(spec), context());
  }
  bool supports(DType dtype) const override { return computes_in(traits_.kind, dtype); }
  void copy_in(void* device, const void* host, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, static_cast<std::size_t>(bytes));
  }
  void copy_out(void* host, const void* device, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, static_cast<std::size_t>(bytes));
  }
  void zero(void* device, std::int64_t bytes) override {
    if (bytes > 0) std::memset(device, 0, static_cast<std::size_t>(bytes));
  }
  void* stream() override { return &threads_; }
  Ceilings ceilings(const Precision&) override { return cpu_ceilings(*this); }
  double roof_tflops(const Precision& precision) override {
    const DType operands = precision.autocast.value_or(precision.parameters);
    return best_fma_gflops(*this, 5, operands) * 1e-3;
  }
  std::int64_t resident_bytes() const override { return cpu::process_resident_bytes(); }
  std::int64_t resident_reserved_bytes() override { return source_.resident_bytes(); }

 private:
  const std::string name_ = "cpu";
  DeviceTraits traits_;
  cpu::CpuThreads threads_;
  cpu::HugePageSource source_;
  std::unique_ptr<Allocator> allocator_;
  KernelTable table_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  if (options.threads < 0) {
    fail_usage("cpu", "{} threads; a positive number, or 0 for all cores", options.threads);
  }
  return std::make_unique<CpuDevice>(options);
}

}  // namespace tracestep
