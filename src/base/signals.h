// Signals that end a run. A dedicated thread receives them, so that no computing thread is ever
// interrupted: some libraries' matrix products use the stack pointer for other data for a while,
// which a signal's frame would overwrite.
#pragma once

#include <csignal>
#include <string>

namespace tracestep {

// Blocks SIGINT, SIGTERM and SIGHUP for the calling thread and all threads that it starts later,
// and starts the thread that waits for them. A signal that the process was told to ignore (nohup)
// stays ignored. SIGXFSZ and SIGPIPE are ignored from then on: writing beyond the file size limit,
// or to a closed pipe, fails as a write to a full disk does. Call it once, before any other thread
// exists.
void take_signals();

// The signal mask from before take_signals(). A child process must start with it, and with the
// default action for SIGXFSZ and SIGPIPE.
const sigset_t& mask_before_signals();

// Ends the process by SIGPIPE without a message, for when the reader of a result has closed the
// pipe (`| head`).
[[noreturn]] void end_by_broken_pipe();

// While a StopSignal exists, the first signal only asks the run to stop at its next safe point, and
// a line on stderr confirms that at once; a second signal ends the process, unless it is the same
// one within 100 ms. Without a StopSignal the first signal ends it. Needs take_signals(); only one
// may exist at a time.
class StopSignal {
 public:
  // `what_follows`: what that line says will happen: "the step under way is finished first".
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
