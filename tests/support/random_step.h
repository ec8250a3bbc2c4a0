// Steps with random options, drawn from the table of fields (spec/fields.h), so that an option that
// is added there is drawn too.
#pragma once

#include "run/run_spec.h"
#include "support/random_ops.h"

namespace tracestep::testing {

// Gives every option that changes the program or its speed a random value, or keeps that of `base`
// with the given probability. Sizes and place stay. The options may exclude each other: then making
// the program throws Error{kUsage}.
RunSpec random_step(Dice& dice, RunSpec base, double kept = 0.4);

// Draws a model that takes no time, with sizes that are no multiples of one another.
RunSpec random_small_model(Dice& dice);

// Every option that random_step() draws, with its value: "mode step, precision bf16, ...".
std::string text_of_step(const RunSpec& spec);

}  // namespace tracestep::testing
