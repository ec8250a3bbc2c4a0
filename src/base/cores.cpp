#include "base/cores.h"

#include <sched.h>

namespace tracestep {
namespace {

std::vector<int> allowed_now() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> ids;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return ids;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) ids.push_back(i);
  }
  return ids;
}

}  // namespace

const std::vector<int>& cores_at_start() {
  static const std::vector<int> ids = allowed_now();
  return ids;
}

void bind_to_core(int core) {
  cores_at_start();
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void leave_core() {
  if (cores_at_start().empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores_at_start()) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace tracestep
