// Records of a device's own profiler: kernels, copies and fills with their exact times, and the
// driver calls that launched them. A back end's ActivityTracer (runtime/) fills them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "record/recorder.h"

namespace tracestep {

enum class ActivityKind : std::uint8_t { kKernel, kCopy, kFill };

// One piece of work on the device.
struct Activity {
  ActivityKind kind = ActivityKind::kKernel;
  std::int32_t node = kWholeStep;  // The node that launched it; kWholeStep: no node did.
  std::int32_t name = 0;           // An index into ActivityTrace::names.
  std::int64_t start_ns = 0;       // By the clock of now_ns().
  std::int64_t end_ns = 0;
  std::uint32_t correlation = 0;  // The number of the call that launched it.
  std::uint64_t graph_node = 0;   // The node of a captured graph; 0: it was launched directly.
  std::uint32_t device = 0, context = 0, stream = 0;
  std::int64_t bytes = 0;  // The bytes of a copy or fill.
  // The launch sizes of a kernel.
  std::array<std::int64_t, 3> grid{}, block{};
  std::int64_t registers_per_thread = 0;
  std::int64_t shared_bytes = 0;  // Static plus dynamic shared memory for each thread block.
};

// A call of the driver or the runtime on the host.
struct ApiCall {
  std::int32_t name = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  std::uint32_t correlation = 0;
  std::uint32_t thread = 0;
};

struct ActivityTrace {
  std::vector<std::string> names;
  std::vector<Activity> activities;  // Sorted by start.
  std::vector<ApiCall> calls;        // Sorted by start.
  // The number of records that the profiler lost; unless it is 0, the trace cannot be trusted.
  std::int64_t dropped = 0;
};

}  // namespace tracestep
