// Finds what a text claims of all rows, and what it compares with itself.
#pragma once

#include <string>

#include "lab/report/quantity.h"

namespace tracestep::testing {

// The words of the page itself, without what it quotes.
std::string own_words(const Text& text);

// Finds the first word of many rows: "all", not "all kernels together", which are those of one
// step; empty: there is none.
std::string universal_in(std::string words);

// True if a formula compares a row with itself: "(a / a)".
bool compares_itself(const Text& text);

}  // namespace tracestep::testing
