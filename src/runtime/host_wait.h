// Lets another thread see when the host waits for its device. A collective between devices may wait
// forever for a rank that never comes, and the host with it, inside the driver, where nothing else
// can end the wait.
#pragma once

#include <cstdint>
#include <thread>

#include "runtime/processes.h"

namespace tracestep {

// While this object exists, the calling thread counts as waiting for a device. Issuing work counts
// too, since it waits when the device's queue is full. Waits may be nested. Without a WaitWatch it
// does nothing.
class HostWait {
 public:
  // `what` completes "it waits for" in the message; the text must outlive this object.
  explicit HostWait(const char* what);
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

  const char* what() const { return what_; }
  double seconds() const;

 private:
  const char* const what_;
  // When the wait began, as the number of the watcher's check; -1: there is no watcher.
  std::int64_t since_ = -1;
};

// Sets the step of the run, counted from 1, in which later waits are reported.
void enter_step(std::int64_t number);

// Ends all processes (Processes::end_all, with the status of a failed run) if a thread of this one
// stays in one wait for `timeout_s` and a second; by then a rank that gives no sign of life has
// been named. The time counts from the beginning of the wait, so a step that keeps its device busy
// for longer ends too; time in which the process was stopped does not count. Only one may exist at
// a time.
class WaitWatch {
 public:
  WaitWatch(Processes& processes, double timeout_s);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace tracestep
