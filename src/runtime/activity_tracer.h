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
  // Whether what is captured between enter() and leave() keeps its node when the captured work
  // runs. False: work that was captured is nobody's.
  virtual bool follows_captures() const { return false; }
  // Waits for the device and hands out what was recorded since start(). Throws DeviceError.
  virtual ActivityTrace stop() = 0;
};

}  // namespace tracestep
