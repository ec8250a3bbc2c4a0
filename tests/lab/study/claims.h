// Checks the printed text of an answer against the tables: every number in it is what the formula
// beside it gives, in its unit and to its last digit; every word that compares stands in words
// whose relation holds and says the same; nothing else has numbers or comparatives.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/statement.h"
#include "lab/report/table.h"

namespace tracestep::testing {

// One line for each thing that is wrong; empty for an honest text.
std::vector<std::string> wrong_claims(const Text& text, std::span<const Table> tables);

}  // namespace tracestep::testing
