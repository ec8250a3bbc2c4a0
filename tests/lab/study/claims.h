// Checks the printed text of an answer against the tables: every number in it is what the formula
// beside it gives, in its unit and to its last digit; the relation that has chosen an outcome's
// words holds; quotations are what the cells say; nothing else has numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/statement.h"
#include "lab/report/table.h"
#include "lab/study/answers.h"

namespace tracestep::testing {

// A line for each false claim of the text; empty for an honest one.
std::vector<std::string> wrong_claims(const Text& text, std::span<const Table> tables);
// The wrong claims of the answer's text and of its own table.
std::vector<std::string> wrong_claims(const Answer& answer, std::span<const Table> tables);

}  // namespace tracestep::testing
