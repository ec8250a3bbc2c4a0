// A small model of every family that is read from config.json: the fixtures of tests/golden.
#pragma once

#include <vector>

#include "nn/config.h"

namespace tracestep::testing {

// The models in the order of their files' names.
std::vector<ModelConfig> family_models();

}  // namespace tracestep::testing
