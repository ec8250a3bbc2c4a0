#include "backends/cuda/toolkit/events.h"

#include <cmath>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/waits.h"

namespace tracestep::cuda {

EventMarks::EventMarks(cudaStream_t stream, std::size_t count)
    : stream_(stream), events_(count, nullptr) {
  for (cudaEvent_t& event : events_) TRACESTEP_CUDA(cudaEventCreate(&event));
}

EventMarks::~EventMarks() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void EventMarks::set(std::size_t i) {
  TRACESTEP_CUDA(cudaEventRecord(events_[i], stream_));
}

std::int64_t EventMarks::between_ns(std::size_t i, std::size_t j) {
  float ms = 0.0f;
  wait_for(events_[j]);
  TRACESTEP_CUDA(cudaEventElapsedTime(&ms, events_[i], events_[j]));
  return std::llround(static_cast<double>(ms) * 1e6);
}

StreamEvents::StreamEvents(std::function<cudaStream_t(int lane)> stream_of, std::size_t count)
    : stream_of_(std::move(stream_of)), events_(count, nullptr) {
  for (cudaEvent_t& event : events_) {
    TRACESTEP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
}

StreamEvents::~StreamEvents() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void StreamEvents::set(std::size_t i, int lane) {
  TRACESTEP_CUDA(cudaEventRecord(events_[i], stream_of_(lane)));
}

void StreamEvents::wait(std::size_t i, int lane) {
  TRACESTEP_CUDA(cudaStreamWaitEvent(stream_of_(lane), events_[i], 0));
}

}  // namespace tracestep::cuda
