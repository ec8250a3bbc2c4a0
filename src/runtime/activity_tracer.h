// A device's own profiler, for a few steps: what ran when, and for which node.
#pragma once

#include "ir/program.h"
#include "record/activity.h"

namespace tracestep {

class ActivityTracer {
 public:
  virtual ~ActivityTracer() = default;
  // Records from now on. One tracer of a process records at a time.
  virtual void start() = 0;
  // What this thread launches between enter() and leave() belongs to `node`.
  virtual void enter(NodeId node) = 0;
  virtual void leave() = 0;
  // Waits for the device and hands out what was recorded since start(). Throws DeviceError.
  virtual ActivityTrace stop() = 0;
};

}  // namespace tracestep
