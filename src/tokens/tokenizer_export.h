// Tokenizers made here, in the format of the library `tokenizers`, so that transformers gives a
// text the ids that its model was trained with.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tracestep {

// The tokenizer.json whose token b is the byte b.
std::string tokenizer_json_of_bytes();

// A piece of byte-pair encoding, in the order of ids; the earlier of two is merged first.
struct VocabPiece {
  std::string text;            // U+2581 is a space; "<0x41>" is a byte
  bool is_merged = false;      // it comes from characters and pieces, and may become part of others
  bool is_kept_apart = false;  // it is found before anything is merged, as a newline is
};

// The tokenizer.json of these pieces: spaces as U+2581, characters without a piece byte by byte.
// Time and bytes grow with the characters of all pieces.
std::string tokenizer_json_of_pieces(std::span<const VocabPiece> pieces);

// The tokenizer_config.json beside either, for AutoTokenizer of transformers.
std::string tokenizer_config_json();

}  // namespace tracestep
