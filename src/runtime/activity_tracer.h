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
  // Begins work of `node`: what this thread launches until leave() belongs to it.
  virtual void enter(NodeId node) = 0;
  virtual void leave() = 0;
  // True if work that is captured between enter() and leave() keeps its node when it runs. False:
  // captured work belongs to no node.
  virtual bool follows_captures() const { return false; }
  // Waits for the device and hands out what was recorded since start(). Throws DeviceError.
  virtual ActivityTrace stop() = 0;
};

}  // namespace tracestep
