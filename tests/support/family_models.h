// A small model of every family that is read from config.json: the fixtures of tests/golden.
#pragma once

#include <vector>

#include "nn/config.h"

namespace tracestep::testing {

// By the names of the files, in their order.
std::vector<ModelConfig> family_models();

}  // namespace tracestep::testing
