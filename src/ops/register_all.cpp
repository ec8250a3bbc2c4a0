#include <mutex>

#include "ops/functions.h"
#include "ops/registers.h"

namespace tracestep::ops {

void register_all() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const auto& add : kOpFamilies) add();
  });
}

}  // namespace tracestep::ops
