// Processes that have joined by TCP, for tests of what they tell each other and how they end.
#pragma once

#include <functional>
#include <vector>

#include "runtime/processes.h"

namespace tracestep::testing {

// Finds a port of this machine that nobody listens on.
int free_port();

// Runs `work` in `count` processes that have joined; returns their exit statuses, 128 + signal for
// killed ones. A process that returns has status 0, one that throws 99. `stopped`: one that is
// killed when the others have ended.
std::vector<int> in_processes(int count, double timeout_s,
                              const std::function<void(Processes&)>& work, int stopped = -1);

// Ends this process, one of them, with status 98 unless the condition holds.
void expect(bool condition);

}  // namespace tracestep::testing
