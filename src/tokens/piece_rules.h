// Checks the rules by which a SentencePiece model rewrites characters, before the library reads
// them: it would follow them out of bounds, and a rule may replace a character by any text.
#pragma once

#include <string>
#include <string_view>

namespace tracestep {

// Checks a file's rules for characters. `model`: the file, a protocol buffer; the library reports a
// malformed one. Throws Error{kInput} naming `origin` for rules that point outside of themselves,
// or that replace a character by more than 64 bytes.
void check_piece_rules(std::string_view model, const std::string& origin);

}  // namespace tracestep
