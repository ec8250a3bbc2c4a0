#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

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

const std::vector<int>& allowed_core_numbers() {
  static const std::vector<int> ids = allowed_now();
  return ids;
}

int allowed_cores() {
  const auto known = static_cast<int>(allowed_core_numbers().size());
  return known > 0 ? known : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace tracestep
