// Options that say which documents are read, and how they become tokens.
#pragma once

#include "cli/token_input.h"

namespace tracestep::cli {

// Adds --data and what goes with it.
void add_document_options(OptionSet& set, DataOptions& data);

// The documents of `options.data`, as tokens of the tokenizer that a text gets. Errors: as
// read_documents() and tokenizer_for_text(); kUsage for an end of text that is not one token.
TokenInput read_document_tokens(const TokenOptions& options, const Weights* weights);

// Refuses what rows of this source cannot have: --pack without documents, and targets that do not
// count in a captured module, whose loss is its own. Then sets what the program depends on.
void take_rows(RunSpec& run, const TokenSource& tokens);

}  // namespace tracestep::cli
