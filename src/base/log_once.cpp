#include "base/log_once.h"

#include <mutex>
#include <set>

#include "base/log.h"

namespace tracestep {

void log_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(line).second) return;
  }
  log_info("{}", line);
}

}  // namespace tracestep
