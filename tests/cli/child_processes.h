// What a test sees of other processes in /proc: who descends from one, and whether it has ended.
#pragma once

#include <functional>
#include <vector>

#include <sys/types.h>

namespace tracestep {

// The processes that its main thread started and that are still there.
std::vector<pid_t> children_of(pid_t parent);
// The children, their children, and so on.
std::vector<pid_t> descendants_of(pid_t ancestor);

// As /proc has it: 'R', 'S', 'T', …; 0 when there is no such process.
char state_of(pid_t process);

// Whether this program, running there, receives signals by now: before that, SIGUSR1 ends it.
bool takes_signals(pid_t process);

// Whether all of them have ended: dead ones count, whether or not somebody has waited for them.
bool are_ended(const std::vector<pid_t>& processes);
// Whether all of them have ended within ten seconds.
bool are_gone(const std::vector<pid_t>& processes);

// Whether it holds within 20 seconds.
bool comes_true(const std::function<bool()>& condition);

}  // namespace tracestep
