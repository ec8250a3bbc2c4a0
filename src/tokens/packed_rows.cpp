#include "tokens/packed_rows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace tracestep {

bool PackedRows::has_targets(const Piece& piece) const {
  if (!tokens_->masks_targets()) return true;
  std::vector<std::int64_t> targets(static_cast<std::size_t>(piece.places));
  tokens_->read(piece.start + 1, targets);
  return std::ranges::any_of(targets, is_trained);
}

// Cuts the documents into pieces of at most a row, without pieces in which no target counts.
std::vector<PackedRows::Piece> PackedRows::cut() {
  std::vector<Piece> out;
  const auto begins = tokens_->documents();
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::int64_t end = i + 1 < begins.size() ? begins[i + 1] : tokens_->size();
    const std::int64_t places = end - begins[i] - 1;
    documents_ += places > 0 ? 1 : 0;
    split_ += places > context_ ? 1 : 0;
    for (std::int64_t at = 0; at < places; at += context_) {
      const Piece piece{begins[i] + at, std::min(context_, places - at)};
      if (!has_targets(piece)) {
        ++left_out_;
        continue;
      }
      out.push_back(piece);
      filled_ += piece.places;
    }
  }
  return out;
}

PackedRows::PackedRows(TokenSourcePtr tokens, std::int64_t context)
    : tokens_(std::move(tokens)), context_(context) {
  std::vector<Piece> pieces = cut();
  if (pieces.empty()) {
    if (left_out_ > 0)
      fail_input("tokens"_field, "no token of {} counts in the loss", tokens_->name());
    fail_input("tokens"_field, "{} has no document of two tokens or more to pack", tokens_->name());
  }
  std::ranges::stable_sort(pieces, std::greater(), &Piece::places);
  std::vector<std::vector<Piece>> rows;
  std::map<std::int64_t, std::vector<std::size_t>> by_room;  // rows by the places left in them
  for (const Piece& piece : pieces) {
    std::size_t row = rows.size();
    std::int64_t room = context;
    if (const auto found = by_room.lower_bound(piece.places); found != by_room.end()) {
      room = found->first;
      row = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) by_room.erase(found);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(piece);
    if (room > piece.places) by_room[room - piece.places].push_back(row);
  }
  // Rows, and pieces in them, in the order of the stream.
  for (auto& row : rows) std::ranges::sort(row, {}, &Piece::start);
  std::ranges::sort(rows, {}, [](const auto& row) { return row.front().start; });
  for (const auto& row : rows) {
    first_piece_.push_back(pieces_.size());
    pieces_.insert(pieces_.end(), row.begin(), row.end());
  }
  first_piece_.push_back(pieces_.size());
}

Batch PackedRows::batch(std::span<const std::int64_t> rows) const {
  Batch out = empty_batch(std::ssize(rows), context_, true);
  const auto starts = out.starts.as<std::int64_t>(), ends = out.ends.as<std::int64_t>();
  std::vector<std::int64_t> read;
  for (std::size_t b = 0; b < rows.size(); ++b) {
    const auto row = static_cast<std::size_t>(rows[b]);
    const std::int64_t first = static_cast<std::int64_t>(b) * context_;
    std::int64_t at = 0;
    const auto bound = [&](std::int64_t places) {
      std::fill_n(starts.begin() + first + at, places, at);
      std::fill_n(ends.begin() + first + at, places, at + places);
      at += places;
    };
    for (std::size_t i = first_piece_[row]; i < first_piece_[row + 1]; ++i) {
      read.resize(static_cast<std::size_t>(pieces_[i].places) + 1);
      tokens_->read(pieces_[i].start, read);
      set_places(out, first + at, read);
      bound(pieces_[i].places);
    }
    bound(context_ - at);
  }
  return out;
}

}  // namespace tracestep
