#include "runtime/communicator.h"

#include "runtime/processes.h"

namespace tracestep {

bool agree(Communicator* group, bool own) {
  Processes* const processes = group == nullptr ? nullptr : group->processes();
  return processes == nullptr ? own : processes->exchange(own ? 1 : 0)[0] == 1;
}

}  // namespace tracestep
