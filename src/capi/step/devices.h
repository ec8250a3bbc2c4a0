// The devices of the library: made for a session, with the memory that its caller lends.
#pragma once

#include <memory>

#include "run/run_spec.h"
#include "runtime/device.h"
#include "runtime/lent_memory.h"

namespace tracestep::capi {

// Error{kUsage} for an unknown name, Error{kDevice} for one that is missing. `lent` must outlive
// it.
std::unique_ptr<Device> make_session_device(const RunSpec& run, const LentMemory& lent);

// The device's work and that of the caller's stream, in both orders. Nothing on a CPU.
void begin_behind_stream(Device& device, void* stream);
void let_stream_wait(Device& device, void* stream);

// While it lives, the calling thread's current GPU is the device's; nothing on a CPU.
class OnDevice {
 public:
  explicit OnDevice(const std::string& device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  struct Gpu;
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace tracestep::capi
