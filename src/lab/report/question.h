// A question of the study and the function that composes its answer. Every folder of the lab lists
// its questions in questions.cpp.
#pragma once

#include "lab/report/evidence.h"

namespace tracestep {

struct Question {
  std::string_view id, topic, question, command;
  Text (*compose)(const Evidence& evidence);  // throws Unsupported
};

// "1 layer", "2 layers".
inline Text counted(const Quantity& count, const char* noun) {
  return say(count.value == 1 ? "{} {}" : "{} {}s", {whole(count), noun});
}

}  // namespace tracestep
