// Writes tokenizers that were made here in the format of the library `tokenizers`, so that
// transformers encodes a text into the ids with which its model was trained.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tracestep {

// A tokenizer.json in which token b is the byte b.
std::string tokenizer_json_of_bytes();

// A piece of a byte-pair vocabulary. Pieces are in the order of ids; of two possible merges, the
// earlier piece is merged first.
struct VocabPiece {
  std::string text;        // The text; U+2581 stands for a space, and "<0x41>" for a byte.
  bool is_merged = false;  // True: the piece is made by merging, and may be merged further.
  // True: the piece is found before anything is merged, like a newline.
  bool is_kept_apart = false;
};

// The tokenizer.json of these pieces. Spaces become U+2581, and characters without a piece are
// encoded byte by byte. Time and size grow with the characters of all pieces.
std::string tokenizer_json_of_pieces(std::span<const VocabPiece> pieces);

// Returns the tokenizer_config.json for either tokenizer.json, which AutoTokenizer reads.
std::string tokenizer_config_json();

}  // namespace tracestep
