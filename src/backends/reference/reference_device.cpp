#include "backends/reference/reference_device.h"

#include <cstring>
#include <new>

#include "backends/reference/kernels.h"
#include "planning/needs.h"
#include "runtime/collective_kernels.h"

namespace tracestep {
namespace {

// Allocates plain host memory, aligned to 512 bytes.
class HeapSource final : public MemorySource {
 public:
  void* map(std::int64_t bytes) override {
    return ::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow);
  }
  void unmap(void* address, std::int64_t) override { ::operator delete(address, kAlignment); }

 private:
  static constexpr std::align_val_t kAlignment{512};
};

KernelTable all_kernels() {
  KernelTable table(reference::kKernelFamilies);
  add_collective_kernels(table);
  return table;
}

class ReferenceDevice final : public Device {
 public:
  explicit ReferenceDevice(const ReferenceOptions& options)
      : kernels_(all_kernels()),
        allocator_(options.guarded ? make_guarded_allocator(name_, source_)
                                   : make_caching_allocator(name_, source_)) {
    if (options.lent != nullptr) allocator_ = with_lent(std::move(allocator_), *options.lent);
    allocator_->set_limit(options.memory_limit);
  }

  const std::string& name() const override { return name_; }
  const DeviceTraits& traits() const override { return traits_; }
  Allocator& allocator() override { return *allocator_; }
  bool has_kernel(const OpDef& op) const override { return kernels_.contains(op.name); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return kernels_.prepare(std::move(spec), context());
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

 private:
  const std::string name_ = "reference";
  const DeviceTraits traits_{.kind = DeviceKind::kReference};
  const KernelTable kernels_;
  HeapSource source_;
  std::unique_ptr<Allocator> allocator_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(const ReferenceOptions& options) {
  return std::make_unique<ReferenceDevice>(options);
}

}  // namespace tracestep
