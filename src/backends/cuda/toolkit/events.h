// Marks on a stream, and events between two streams, by CUDA events.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
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

// Events of lanes. While lane 0 is captured, any other lane is captured with it from the lane's
// first wait on.
class StreamEvents final : public LaneEvents {
 public:
  // The stream of a lane is asked for each time, because a device that joins a group changes the
  // stream of lane 1.
  StreamEvents(std::function<cudaStream_t(int lane)> stream_of, std::size_t count);
  ~StreamEvents() override;
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;
  void set(std::size_t i, int lane) override;
  void wait(std::size_t i, int lane) override;

 private:
  const std::function<cudaStream_t(int lane)> stream_of_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace tracestep::cuda
