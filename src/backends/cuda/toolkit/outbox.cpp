#include "backends/cuda/toolkit/outbox.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/waits.h"
#include "runtime/host_wait.h"

namespace tracestep::cuda {

StreamOutbox::StreamOutbox(cudaStream_t stream, std::span<const std::size_t> bytes,
                           std::function<void()> check)
    : stream_(stream),
      bytes_(bytes.begin(), bytes.end()),
      check_(std::move(check)),
      letter_(sizeof(Letter)) {
  TRACESTEP_CHECK(bytes.size() <= kMostValues, "{} values in an outbox", bytes.size());
  for (std::size_t size : bytes) TRACESTEP_CHECK(size <= kMostBytes, "a value of {} bytes", size);
  std::memset(letter_.data(), 0, sizeof(Letter));
}

StreamOutbox::~StreamOutbox() {
  settle(stream_);  // what is under way still writes here
}

void StreamOutbox::send(std::span<const void* const> values) {
  Sending out{};
  out.count = static_cast<unsigned>(bytes_.size());
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    out.values[i] = static_cast<const unsigned char*>(values[i]);
    out.bytes[i] = static_cast<unsigned>(bytes_[i]);
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TRACESTEP_CUDA(cudaStreamIsCapturing(stream_, &status));
  TRACESTEP_CUDA(launch_send(stream_, out, static_cast<Letter*>(letter_.data())));
  if (status == cudaStreamCaptureStatusNone) ++sent_;
}

std::span<const std::byte> StreamOutbox::read(std::size_t i) {
  wait();
  check_();
  const auto* letter = static_cast<const Letter*>(letter_.data());
  return std::as_bytes(std::span(letter->values[i], bytes_[i]));
}

// Waits by looking at the memory itself, which costs no call of the driver; now and then asks the
// driver whether the device still works.
void StreamOutbox::wait() const {
  constexpr int kLooksPerQuery = 4096;
  const HostWait wait("results of its GPU");
  auto* letter = static_cast<Letter*>(letter_.data());
  const std::atomic_ref<unsigned> arrived(letter->arrived);
  for (int looks = 1; arrived.load(std::memory_order_acquire) != sent_; ++looks) {
    std::this_thread::yield();
    if (looks % kLooksPerQuery != 0) continue;
    const cudaError_t status = cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) continue;
    TRACESTEP_CUDA(status);
    TRACESTEP_CHECK(arrived.load(std::memory_order_acquire) == sent_,
                    "{} results were sent and {} arrived", sent_, letter->arrived);
  }
}

}  // namespace tracestep::cuda
