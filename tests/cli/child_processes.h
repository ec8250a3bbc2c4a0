// Observes other processes by /proc: who descends from one, and whether it has ended.
#pragma once

#include <functional>
#include <vector>

#include <sys/types.h>

namespace tracestep {

// The processes that its main thread started and that are still there.
std::vector<pid_t> children_of(pid_t parent);
// The children, their children, and so on.
std::vector<pid_t> descendants_of(pid_t ancestor);

// The state in /proc: 'R', 'S', 'T', …; 0 when there is no such process.
char state_of(pid_t process);

// True if this program, running there, handles signals: before that, SIGUSR1 ends it.
bool takes_signals(pid_t process);

// True if all of them have ended: dead ones count, whether or not somebody has waited for them.
bool are_ended(const std::vector<pid_t>& processes);
// True if all of them end within ten seconds.
bool are_gone(const std::vector<pid_t>& processes);

// True if `condition` holds within 20 seconds.
bool comes_true(const std::function<bool()>& condition);

}  // namespace tracestep
