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
  // Work that this thread launches between enter() and leave() belongs to `node`.
  virtual void enter(NodeId node) = 0;
  virtual void leave() = 0;
  // True if work that is captured between enter() and leave() keeps its node when it runs. False:
  // captured work belongs to no node.
  virtual bool follows_captures() const { return false; }
  // Waits for the device and hands out what was recorded since start(). Throws DeviceError.
  virtual ActivityTrace stop() = 0;
};

}  // namespace tracestep
