// The numbers that the course's handout gives its questions, and the order that follows from them.
#pragma once

#include <cstddef>
#include <string_view>

namespace tracestep {

// "1.1.4 b" for the question with this id; empty: the handout does not ask it.
std::string_view number_of(std::string_view question);
// Its place in the order of the study; questions that the handout does not ask come last.
std::size_t place_of(std::string_view question);

}  // namespace tracestep
