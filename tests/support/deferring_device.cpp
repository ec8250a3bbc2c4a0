#include "support/deferring_device.h"

#include <cstring>
#include <map>

#include "base/integers.h"
#include "runtime/sanitizer.h"  // does something with TRACESTEP_ASAN alone

namespace tracestep::testing {

class DeferringDevice::Kernel final : public PreparedKernel {
 public:
  Kernel(DeferringDevice& device, std::unique_ptr<PreparedKernel> inner)
      : device_(device), inner_(std::move(inner)) {}
  ~Kernel() override { device_.drain(); }

  void launch(const LaunchOperands& at, const LaunchContext& context) override {
    const std::vector<void*> inputs(at.inputs.begin(), at.inputs.end());
    const std::vector<void*> outputs(at.outputs.begin(), at.outputs.end());
    device_.add([this, inputs, outputs, workspace = at.workspace, context] {
      inner_->launch({inputs, outputs, workspace}, context);
    });
  }

 private:
  DeferringDevice& device_;
  const std::unique_ptr<PreparedKernel> inner_;
};

class DeferringDevice::Replay final : public CapturedWork {
 public:
  explicit Replay(DeferringDevice& device) : device_(device) {}
  void launch() override {
    ++device_.replays;
    for (const auto& one : work) device_.add(one);
  }
  std::int64_t kernels() const override { return std::ssize(work); }

  Work work;

 private:
  DeferringDevice& device_;
};

class DeferringDevice::Letters final : public Outbox {
 public:
  Letters(DeferringDevice& device, std::span<const std::size_t> bytes) : device_(device) {
    for (std::size_t size : bytes) values_.emplace_back(size);
  }
  ~Letters() override { device_.drain(); }

  void send(std::span<const void* const> values) override {
    if (device_.capturing_ == nullptr) ++sent_;
    device_.add([this, from = std::vector<const void*>(values.begin(), values.end())] {
      for (std::size_t i = 0; i < from.size(); ++i) {
        std::memcpy(values_[i].data(), from[i], values_[i].size());
      }
      ++arrived_;
    });
  }
  void count_replay() override { ++sent_; }
  std::span<const std::byte> read(std::size_t i) override {
    while (arrived_ != sent_) device_.do_next();
    return values_[i];
  }

 private:
  DeferringDevice& device_;
  std::vector<std::vector<std::byte>> values_;
  int sent_ = 0, arrived_ = 0;
};

// The device's allocator poisons what the host frees, which kernels in the queue may still use.
class DeferringDevice::QueuedPoison final : public Allocator {
 public:
  QueuedPoison(DeferringDevice& device, Allocator& inner) : device_(device), inner_(inner) {}

  void* allocate(std::int64_t bytes, const AllocationTag& tag) override {
    void* const address = inner_.allocate(bytes, tag);
    bytes_[address] = bytes;
    add([address, bytes] { allow_access(address, bytes); });
    return address;
  }
  void free(void* address) override {
    inner_.free(address);
    const std::int64_t bytes = round_up(std::exchange(bytes_[address], 0), kBlock);
    allow_access(address, bytes);
    add([address, bytes] { forbid_access(address, bytes); });
  }
  void trim() override {
    device_.drain();
    inner_.trim();
  }
  const AllocatorStats& stats() const override { return inner_.stats(); }
  void reset_peak() override { inner_.reset_peak(); }
  void set_limit(std::int64_t bytes) override { inner_.set_limit(bytes); }
  std::int64_t limit() const override { return inner_.limit(); }
  void set_recorder(Recorder* recorder) override { inner_.set_recorder(recorder); }
  Recorder* recorder() const override { return inner_.recorder(); }
  std::vector<LiveAllocation> live() const override { return inner_.live(); }
  bool is_guarded() const override { return inner_.is_guarded(); }
  std::int64_t block_alignment() const override { return inner_.block_alignment(); }

 private:
  // Adds work that is never part of a capture.
  void add(std::function<void()> work) {
    ++device_.poisonings_;
    device_.queue_.push_back([&device = device_, work = std::move(work)] {
      work();
      --device.poisonings_;
    });
  }

  static constexpr std::int64_t kBlock = 512;  // what is free is a multiple of it

  DeferringDevice& device_;
  Allocator& inner_;
  std::map<void*, std::int64_t> bytes_;
};

DeferringDevice::DeferringDevice(std::unique_ptr<Device> device)
    : WrappedDevice(std::move(device)),
      allocator_(std::make_unique<QueuedPoison>(*this, inner().allocator())) {}

DeferringDevice::~DeferringDevice() {
  drain();
}

Allocator& DeferringDevice::allocator() {
  return *allocator_;
}

void DeferringDevice::add(std::function<void()> work) {
  if (capturing_ != nullptr) {
    capturing_->push_back(std::move(work));
  } else {
    queue_.push_back(std::move(work));
  }
}

void DeferringDevice::do_next() {
  TRACESTEP_CHECK(!queue_.empty(), "the host waits for what was never issued");
  const std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  work();
}

void DeferringDevice::drain() {
  while (!queue_.empty()) do_next();
}

std::unique_ptr<PreparedKernel> DeferringDevice::prepare(KernelSpec spec) {
  return std::make_unique<Kernel>(*this, inner().prepare(std::move(spec)));
}

void DeferringDevice::copy_in(void* device, const void* host, std::int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(host);
  add([this, device, data = std::vector<std::byte>(from, from + bytes)] {
    inner().copy_in(device, data.data(), std::ssize(data));
  });
}

void DeferringDevice::copy_in_beside(void* device, const void* host, std::int64_t bytes) {
  ++copies_beside;
  inner().copy_in(device, host, bytes);
}

void DeferringDevice::copy_out(void* host, const void* device, std::int64_t bytes) {
  drain();
  inner().copy_out(host, device, bytes);
}

void DeferringDevice::zero(void* device, std::int64_t bytes) {
  add([this, device, bytes] { inner().zero(device, bytes); });
}

std::unique_ptr<CapturedWork> DeferringDevice::capture(const std::function<void()>& issue) {
  auto out = std::make_unique<Replay>(*this);
  capturing_ = &out->work;
  try {
    issue();
  } catch (...) {
    capturing_ = nullptr;
    throw;
  }
  capturing_ = nullptr;
  return out;
}

std::unique_ptr<Outbox> DeferringDevice::make_outbox(std::span<const std::size_t> bytes) {
  return std::make_unique<Letters>(*this, bytes);
}

}  // namespace tracestep::testing
