// Makes a random program that shows a fault as small as it can while it still shows it.
#pragma once

#include <functional>

#include "support/random_program.h"

namespace tracestep::testing {

// Makes a failing case smaller. `fails` must hold for `random`; it is given valid programs only.
RandomCase shrunk(RandomCase random, const std::function<bool(const RandomCase&)>& fails);

}  // namespace tracestep::testing
