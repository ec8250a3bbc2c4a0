// A recording of torch.profiler, as it writes it for Chrome's trace viewer: what ran on the host
// and on devices, and how calls, kernels and ops name each other. Of other programs' traces in this
// form what they have is read. Nothing else of the file is kept: some 40 bytes an event.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/read/names.h"

namespace tracestep {

inline constexpr std::uint32_t kNoNumber = UINT32_MAX;

// What ran from `start_ns` to `end_ns`, on a thread of the host (TraceRecording::threads).
struct HostSlice {
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t name = 0, thread = 0;
};

struct HostOp : HostSlice {
  std::uint32_t external = kNoNumber;  // by which kernels name it
  std::uint32_t sequence = kNoNumber;  // shared by an op and its gradient
  bool is_gradient = false;            // it names the thread of its forward pass
};

// A call of the driver or the runtime: a launch, a copy, a wait.
struct HostCall : HostSlice {
  std::uint32_t correlation = kNoNumber;
};

struct DeviceSlice {
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t name = 0;
  std::uint32_t correlation = kNoNumber;  // of its call
  std::uint32_t external = kNoNumber;     // of its op
  std::uint16_t device = 0, stream = 0;
  bool is_copy = false;                  // or a fill
  std::uint32_t collective = kNoNumber;  // its number in its group, where the file says it
};

struct TraceRecording {
  std::filesystem::path path;
  Names names;
  std::vector<std::string> threads;  // process and thread, as the file names them
  std::vector<std::string> gpus;     // names of devices

  // Each sorted by thread, then by start, the longer one first.
  std::vector<HostOp> ops;
  std::vector<HostCall> calls;
  std::vector<HostSlice> modules;      // nn.Module frames
  std::vector<HostSlice> annotations;  // of the user and of PyTorch: steps, optimizers
  std::vector<DeviceSlice> kernels;    // sorted by start

  std::int64_t first_ns = 0, last_ns = 0;  // of all of these
  std::int64_t events = 0, unreadable = 0;
  std::int64_t rank = -1, ranks = 0;  // -1: the file does not say
  bool has_shapes = false, has_stacks = false;
  bool is_cut = false;  // the file ends within its list
};

// Errors: kInput for a file that cannot be read, that is no JSON, or has no events of this kind.
TraceRecording read_recording(const std::filesystem::path& path);

}  // namespace tracestep
