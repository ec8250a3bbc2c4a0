// The devices of the library: made for a session, with the memory that its caller lends.
#pragma once

#include <functional>
#include <memory>

#include "run/run_spec.h"
#include "runtime/communicator.h"
#include "runtime/device.h"
#include "runtime/kernel.h"
#include "runtime/lent_memory.h"
#include "runtime/processes.h"

namespace tracestep::capi {

// Kernels of ops from outside, which the devices of sessions get that are opened from now on; not
// while one is being opened. The ops themselves are registered (ir/op_def.h) before programs name
// them. So for programs that link the engine: the shared library shows nothing of this.
struct OwnKernels {
  std::function<void(KernelTable&table)> cpu = {}, gpu = {};
};
void use_kernels(OwnKernels kernels);

// Error{kUsage} for an unknown name, Error{kDevice} for one that is missing. `lent` must outlive
// it.
std::unique_ptr<Device> make_session_device(const RunSpec& run, const LentMemory& lent);

// This process's end of a group of processes with a GPU each. Errors as make_nccl_group().
std::unique_ptr<Communicator> connected_by_nccl(Processes& processes, Device& device);

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
