// The devices of the library: each is made for a session, with memory that the caller lends.
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

// Kernels of a program's own ops, for the devices of sessions that are opened after this was set;
// it must not be set while a session is being opened. The ops themselves must be registered
// (ir/op_def.h) before programs name them. Only programs that link the engine can use this: the
// shared library does not export it.
struct OwnKernels {
  std::function<void(KernelTable&table)> cpu = {}, gpu = {};
};
void use_kernels(OwnKernels kernels);

// Makes the device of a run. Error{kUsage} for an unknown name, Error{kDevice} for one that is
// missing. `lent` must outlive it.
std::unique_ptr<Device> make_session_device(const RunSpec& run, const LentMemory& lent);

// Returns this process's communicator in a group with one GPU each. Throws as make_nccl_group().
std::unique_ptr<Communicator> connected_by_nccl(Processes& processes, Device& device);

// Make the device's work wait for that of the caller's stream, and the stream wait for the device's
// work. They do nothing on a CPU.
void begin_behind_stream(Device& device, void* stream);
void let_stream_wait(Device& device, void* stream);

// While this object exists, the calling thread's current GPU is the device's; it does nothing on a
// CPU.
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
