// Signals that end a run or ask it to save. A dedicated thread receives them, so that no computing
// thread is ever interrupted: some libraries' matrix products use the stack pointer for other data
// for a while, which a signal's frame would overwrite.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>

namespace tracestep {

// Blocks the signals below for the calling thread and all threads that it starts later, and starts
// the thread that waits for them. SIGINT, SIGTERM, SIGHUP and the time limits SIGALRM and SIGXCPU
// ask the program to end; SIGUSR1 and SIGUSR2 ask it to save and continue. A signal that the
// process was started to ignore (nohup) stays ignored. SIGXFSZ and SIGPIPE are ignored from then
// on: writing beyond the file size limit or to a closed pipe then fails as on a full disk. All
// other signals keep their default effect, such as SIGQUIT with its core file. Call it once, before
// any other thread exists.
void take_signals();

// Returns the signal mask from before take_signals(). A child process must start with it, and with
// the default action for SIGXFSZ and SIGPIPE.
const sigset_t& mask_before_signals();

// Ends the process by SIGPIPE without a message, for when the reader of a result has closed the
// pipe (`| head`).
[[noreturn]] void end_by_broken_pipe();

// While this object exists, the thread that receives signals also sends the first one that ends the
// program to `process`, which must not have been waited for. Only one may exist at a time.
class PassedOn {
 public:
  explicit PassedOn(pid_t process);
  ~PassedOn();
  PassedOn(const PassedOn&) = delete;
  PassedOn& operator=(const PassedOn&) = delete;
};

// While a StopSignal exists, the first signal only asks the run to stop at its next safe point, and
// a line on stderr confirms that at once; a second signal ends the process, unless it is the same
// one within 100 ms, or SIGXCPU, which the system repeats every second. Without a StopSignal the
// first signal ends it. A signal that asks to save is confirmed by a line as well, and never ends
// anything. From the first signal on no message waits long for somebody who reads stderr. Needs
// take_signals(); only one may exist at a time.
class StopSignal {
 public:
  // `what_follows`: what the confirming line says will happen next, such as "the step under way is
  // finished first". `at_save`: the same for a signal that asks to save; empty: there is nothing to
  // save.
  explicit StopSignal(std::string what_follows, std::string at_save = {});
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const { return signal_number() != 0; }
  // Returns the first signal received that ends the program; 0 when there was none.
  int signal_number() const;
  // Returns the process's exit status after an orderly stop: 128 + the signal; 0 without one.
  int exit_status() const { return requested() ? 128 + signal_number() : 0; }
  // Stops this process because of a signal that another process of the run received.
  void take_over(int number) const;

  // True if a signal has asked to save since the last call of saved().
  bool asks_to_save() const;
  // Confirms that everything that signals have asked to save up to now is saved.
  void saved() const;
};

}  // namespace tracestep
