// A question of the study and the function that composes its answer. Every folder of the lab lists
// its questions in questions.cpp.
#pragma once

#include "lab/report/evidence.h"

namespace tracestep {

struct Question {
  std::string_view id, topic, question, command;
  Text (*compose)(const Evidence& evidence);  // throws Unsupported
};

}  // namespace tracestep
