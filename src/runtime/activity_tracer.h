// Records a few steps with a device's own profiler: what ran when, and for which node.
#pragma once

#include "ir/program.h"
#include "record/activity.h"

namespace tracestep {

class ActivityTracer {
 public:
  virtual ~ActivityTracer() = default;
  // Starts recording. Only one tracer of a process may record at a time.
  virtual void start() = 0;
  // What this thread launches between enter() and leave() belongs to `node`.
  virtual void enter(NodeId node) = 0;
  virtual void leave() = 0;
  // Waits for the device and hands out what was recorded since start(). Throws DeviceError.
  virtual ActivityTrace stop() = 0;
};

}  // namespace tracestep
