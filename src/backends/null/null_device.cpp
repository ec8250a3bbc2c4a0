#include "backends/null/null_device.h"

#include <utility>

#include "planning/needs.h"

namespace tracestep {
namespace {

// Gives out addresses that must not be accessed: they only go up, so each is given out once.
class NowhereSource final : public MemorySource {
 public:
  explicit NowhereSource(bool is_of_host) : is_of_host_(is_of_host) {}
  void* map(std::int64_t bytes) override {
    const std::uint64_t address = next_;
    next_ += (static_cast<std::uint64_t>(bytes) + kPage - 1) / kPage * kPage;
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  void unmap(void*, std::int64_t) override {}
  bool host_accessible() const override { return false; }
  bool is_of_host() const override { return is_of_host_; }

 private:
  const bool is_of_host_;
  static constexpr std::uint64_t kPage = 4096;
  std::uint64_t next_ = std::uint64_t{1} << 40;  // far from anything a program could own
};

class NoKernel final : public PreparedKernel {
 public:
  void launch(const LaunchOperands&, const LaunchContext&) override {}
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(NullOptions options)
      : traits_(std::move(options.traits)),
        has_kernel_(std::move(options.has_kernel)),
        allocator_(make_caching_allocator(name_, source_)),
        host_allocator_(make_caching_allocator(name_ + ", host memory", host_source_)) {
    allocator_->set_limit(options.memory_limit);
  }

  const std::string& name() const override { return name_; }
  const DeviceTraits& traits() const override { return traits_; }
  Allocator& allocator() override { return *allocator_; }
  Allocator& host_allocator() override { return *host_allocator_; }
  bool has_kernel(const OpDef& op) const override {
    return has_kernel_ ? has_kernel_(op) : op.has_launches() && runs_whole(traits_.kind, op);
  }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec) override {
    return std::make_unique<NoKernel>();
  }
  bool supports(DType) const override { return true; }
  bool computes() const override { return false; }
  void copy_in(void*, const void*, std::int64_t) override {}
  void copy_out(void*, const void*, std::int64_t) override {}
  void zero(void*, std::int64_t) override {}

 private:
  const std::string name_ = "null";
  const DeviceTraits traits_;
  const std::function<bool(const OpDef&)> has_kernel_;
  NowhereSource source_{false}, host_source_{true};
  std::unique_ptr<Allocator> allocator_, host_allocator_;
};

}  // namespace

std::unique_ptr<Device> make_null_device(NullOptions options) {
  return std::make_unique<NullDevice>(std::move(options));
}

}  // namespace tracestep
