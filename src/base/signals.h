// Signals that end a run. The program takes them in a thread of its own, so that no thread that
// computes is ever interrupted: code that keeps something else in its stack pointer for a while, as
// some libraries' matrix products do, would have the signal's frame written over its data.
#pragma once

#include <csignal>
#include <string>

namespace tracestep {

// Blocks SIGINT, SIGTERM and SIGHUP for the calling thread and all that it starts from then on, and
// starts the thread that waits for them. One that the process was told to ignore (nohup) stays
// ignored. SIGXFSZ and SIGPIPE are ignored from then on: writing beyond the limit of file sizes, or
// to a reader that has gone, is an error of that write, as on a full disk. To be called once,
// before any other thread is there.
void take_signals();

// The mask from before take_signals(): what a new process must start with, besides the default
// action for the two that are ignored.
const sigset_t& mask_before_signals();

// Ends the process by SIGPIPE, without a word: when the reader of a result has seen enough (`|
// head`).
[[noreturn]] void end_by_broken_pipe();

// While it lives the first signal only asks the run to stop at its next safe point, which a line on
// stderr confirms at once; a second one ends the process. Without one, the first does. Needs
// take_signals(); one at a time.
class StopSignal {
 public:
  // `what_follows`: what the line says will happen: "the step under way is finished first".
  explicit StopSignal(std::string what_follows);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const { return signal_number() != 0; }
  // SIGINT, SIGTERM or SIGHUP; 0 when there was none.
  int signal_number() const;
  // What the process should return after an orderly stop: 128 + the signal; 0 without one.
  int exit_status() const { return requested() ? 128 + signal_number() : 0; }
};

}  // namespace tracestep
