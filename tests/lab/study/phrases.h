// The words of answers that say something about quantities: comparatives, superlatives, factors and
// negations of these, and which relations bear them out.
#pragma once

#include <string>
#include <vector>

#include "lab/study/formula.h"

namespace tracestep::testing {

struct Phrase {
  const char* words;
  const char* symbols;     // of relations that bear it out: of "<=~>i", i for "in"
  const char* needs = "";  // of them: t no bytes, ^ the largest of a list, v the smallest, n a
                           // range that is narrow
  double factor = 0;       // that the range or the bound must have; 0: none
};

struct FoundPhrase {
  const Phrase* phrase;
  bool is_negated;  // "not slower", where that is no phrase of its own
};

// The phrases in a text, but for what a clause with "whether" leaves open.
const std::vector<FoundPhrase>& phrases_in(const std::string& words);

bool bears_out(const EvaluatedRelation& relation, const Phrase& phrase);

// Whether the words have a number in digits that is no part of a name (the 32 of float32), a
// fraction of one character, or a number in letters.
bool has_number(const std::string& words);

}  // namespace tracestep::testing
