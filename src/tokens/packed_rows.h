// Rows of a batch that hold whole documents side by side, as full as can be: best fit, the longest
// first. Source: Krell et al. 2021, "Efficient sequence packing without cross-contamination".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokens/batches.h"
#include "tokens/token_file.h"

namespace tracestep {

class PackedRows {
 public:
  // Takes the documents of `tokens`, each of which fills one place less than it has tokens, as its
  // last one is a target alone. A document longer than `context` places is split into pieces of so
  // many, which do not see each other; no other is. Pieces in which no target counts, of prompts
  // longer than a row, are left out. Errors: kInput where there is no document of two tokens, or
  // where no piece is left.
  PackedRows(TokenSourcePtr tokens, std::int64_t context);

  std::int64_t rows() const { return static_cast<std::int64_t>(first_piece_.size()) - 1; }
  std::int64_t filled() const { return filled_; }  // places, of rows() · context
  std::int64_t documents() const { return documents_; }
  std::int64_t split() const { return split_; }        // documents
  std::int64_t left_out() const { return left_out_; }  // pieces without a target

  // The rows of these numbers. Places behind the last document are one of their own, of token 0
  // and without targets.
  Batch batch(std::span<const std::int64_t> rows) const;

 private:
  struct Piece {
    std::int64_t start, places;  // the first token in the stream, and places of a row
  };
  std::vector<Piece> cut();
  bool has_targets(const Piece& piece) const;

  TokenSourcePtr tokens_;
  std::int64_t context_, filled_ = 0, documents_ = 0, split_ = 0, left_out_ = 0;
  std::vector<Piece> pieces_;             // of row 0, then of row 1, …
  std::vector<std::size_t> first_piece_;  // by row, and one more behind the last
};

}  // namespace tracestep
