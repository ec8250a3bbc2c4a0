// Waits of the host for its device, seen by another thread of the process. A collective between
// devices waits for ranks that may never come, and with it the host, inside the driver: nothing
// there ends such a wait.
#pragma once

#include <cstdint>
#include <thread>

#include "runtime/processes.h"

namespace tracestep {

// While it lives, the calling thread waits for a device, or issues work to one, which becomes a
// wait when the device's queue is full. Waits may be nested. Where no WaitWatch looks, it does
// nothing.
class HostWait {
 public:
  // `what` follows "it waits for", and must outlive this object.
  explicit HostWait(const char* what);
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

  const char* what() const { return what_; }
  double seconds() const;

 private:
  const char* const what_;
  std::int64_t since_ = -1;  // the number of the watcher's look; -1: nobody looks
};

// The step of the run, counted from 1, in which later waits are reported.
void enter_step(std::int64_t number);

// Ends all processes (Processes::end_all, with the status of a run that failed) when a thread of
// this one has been in one wait for `timeout_s` and a second, by which time a rank that gives no
// sign of life has been named. The time counts from the beginning of the wait, so a step that keeps
// its device busy for longer is ended as well; time in which the process was stopped does not
// count. One at a time.
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
