// Reads the index of a captured module's folder, capture.json, which may only name what its program
// has.
#pragma once

#include <string>

#include "captured/captured_model.h"

namespace tracestep {

// Fills in what the index says of `model`, whose program is there. Error{kInput} naming `where` and
// the key.
void read_capture_index(const std::string& text, const std::string& where, CapturedModel& model);

}  // namespace tracestep
