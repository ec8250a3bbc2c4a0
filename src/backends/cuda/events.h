// Marks on a stream: CUDA events.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "runtime/device.h"

namespace tracestep::cuda {

class EventMarks final : public Marks {
 public:
  EventMarks(cudaStream_t stream, std::size_t count);
  ~EventMarks() override;
  EventMarks(const EventMarks&) = delete;
  EventMarks& operator=(const EventMarks&) = delete;
  void set(std::size_t i) override;
  std::int64_t between_ns(std::size_t i, std::size_t j) override;

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace tracestep::cuda
