// Sends values from a stream to the host: a kernel writes them to pinned memory, followed by a
// count of how often it has written.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

#include "backends/cuda/toolkit/pinned_memory.h"
#include "runtime/device.h"

namespace tracestep::cuda {

// Values that were sent, in pinned memory, where the host reads them while the device works.
struct Letter {
  unsigned char values[Outbox::kMostValues][Outbox::kMostBytes];
  unsigned arrived;  // How often the values were written.
};

struct Sending {
  const unsigned char* values[Outbox::kMostValues];
  unsigned bytes[Outbox::kMostValues];
  unsigned count;
};

// Launches a kernel of one thread that writes the values of `what` to `to`.
cudaError_t launch_send(cudaStream_t stream, const Sending& what, Letter* to);

class StreamOutbox final : public Outbox {
 public:
  // `check` throws errors that kernels reported; it is called whenever values have arrived.
  StreamOutbox(cudaStream_t stream, std::span<const std::size_t> bytes,
               std::function<void()> check);
  ~StreamOutbox() override;
  void send(std::span<const void* const> values) override;
  void count_replay() override { ++sent_; }
  std::span<const std::byte> read(std::size_t i) override;

 private:
  void wait() const;

  const cudaStream_t stream_;
  const std::vector<std::size_t> bytes_;
  const std::function<void()> check_;
  PinnedMemory letter_;
  unsigned sent_ = 0;  // How many sends were issued, including those of replays.
};

}  // namespace tracestep::cuda
