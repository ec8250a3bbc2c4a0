// StopSignal: the first Ctrl-C asks the run to stop at its next safe point, the second one ends it.
#pragma once

#include <array>
#include <csignal>

namespace tracestep {

// Handles SIGINT and SIGTERM while it lives; one at a time. The first signal is only noted; a
// second one exits at once with 128 + its number (130, 143).
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const { return signal_number() != 0; }
  // SIGINT or SIGTERM; 0 when there was none.
  int signal_number() const;
  // What the process should return after an orderly stop: 130 or 143; 0 when there was no signal.
  int exit_status() const { return requested() ? 128 + signal_number() : 0; }

 private:
  std::array<struct sigaction, 2> previous_;
};

}  // namespace tracestep
