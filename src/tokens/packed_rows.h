// Packs whole documents side by side into rows of a batch, as full as possible: best fit, the
// longest first. Source: Krell et al. 2021, "Efficient sequence packing without
// cross-contamination".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokens/batches.h"
#include "tokens/token_file.h"

namespace tracestep {

class PackedRows {
 public:
  // Packs the documents of `tokens`. A document fills one position less than it has tokens, because
  // its last token is only a target. A document longer than `context` positions is split into
  // pieces of that length, which do not see each other. Pieces without a target that counts, from
  // long prompts, are left out. Throws Error{kInput} if no document has two tokens, or if no piece
  // is left.
  PackedRows(TokenSourcePtr tokens, std::int64_t context);

  std::int64_t rows() const { return static_cast<std::int64_t>(first_piece_.size()) - 1; }
  // The number of positions that are filled, of rows() · context.
  std::int64_t filled() const { return filled_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t split() const { return split_; }  // documents
  // The number of pieces that were left out because none of their targets counts.
  std::int64_t left_out() const { return left_out_; }

  // The batch of these rows. Positions after a row's last document form a document of token 0,
  // without targets.
  Batch batch(std::span<const std::int64_t> rows) const;

 private:
  struct Piece {
    // The index of the first token in the stream, and the number of positions in a row.
    std::int64_t start, places;
  };
  std::vector<Piece> cut();
  bool has_targets(const Piece& piece) const;

  TokenSourcePtr tokens_;
  std::int64_t context_, filled_ = 0, documents_ = 0, split_ = 0, left_out_ = 0;
  std::vector<Piece> pieces_;             // The pieces of row 0, then of row 1, and so on.
  std::vector<std::size_t> first_piece_;  // The index of each row's first piece, and of the end.
};

}  // namespace tracestep
