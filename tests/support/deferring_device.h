// An asynchronous device on the host: what it is given waits in a queue until the host needs it, so
// that whatever depends on an order that was not asked for goes wrong. It captures, too.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "support/wrapped_device.h"

namespace tracestep::testing {

class DeferringDevice final : public WrappedDevice {
 public:
  explicit DeferringDevice(std::unique_ptr<Device> device);
  ~DeferringDevice() override;

  // The allocator, which frees bytes for the address sanitizer when the queue comes to their free.
  Allocator& allocator() override;
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override;
  void copy_in(void* device, const void* host, std::int64_t bytes) override;
  // Copies at once, in front of everything in the queue.
  void copy_in_beside(void* device, const void* host, std::int64_t bytes) override;
  void copy_out(void* host, const void* device, std::int64_t bytes) override;
  void zero(void* device, std::int64_t bytes) override;
  void synchronize() override { drain(); }
  bool is_asynchronous() const override { return true; }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& issue) override;
  std::unique_ptr<Outbox> make_outbox(std::span<const std::size_t> bytes) override;

  std::size_t pending() const { return queue_.size() - poisonings_; }
  int replays = 0, copies_beside = 0;

 private:
  using Work = std::vector<std::function<void()>>;
  class Kernel;
  class Replay;
  class Letters;
  class QueuedPoison;

  void add(std::function<void()> work);
  void do_next();
  void drain();

  std::deque<std::function<void()>> queue_;
  std::size_t poisonings_ = 0;  // of those in the queue
  std::unique_ptr<QueuedPoison> allocator_;
  Work* capturing_ = nullptr;
};

}  // namespace tracestep::testing
