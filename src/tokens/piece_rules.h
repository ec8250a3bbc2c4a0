// The rules by which a model of SentencePiece rewrites characters, checked before the library has
// them: it follows them wherever they lead, and a rule may put any text in a character's place.
#pragma once

#include <string>
#include <string_view>

namespace tracestep {

// `model`: the file, a message of protocol buffers; one that is malformed is left to the library.
// Errors: kInput, naming `origin`, for rules that lead beyond themselves, or put more than 64 bytes
// in the place of a character.
void check_piece_rules(std::string_view model, const std::string& origin);

}  // namespace tracestep
