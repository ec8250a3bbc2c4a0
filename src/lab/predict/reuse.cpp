#include "lab/predict/reuse.h"

#include <algorithm>
#include <limits>

namespace tracestep {

void Reuse::restart() {
  const auto end = std::ssize(buffer_plan_.allocated_at);
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    const Buffer& buffer = buffer_plan_.buffers[i];
    const bool is_left = buffer.first != kNoNode && buffer.last == end && touched_[i] != kNever;
    if (is_left) free_.emplace(buffer.bytes, touched_[i]);
  }
}

void Reuse::begin(NodeId node) {
  for (int b : buffer_plan_.allocated_at[static_cast<std::size_t>(node)]) {
    const auto i = static_cast<std::size_t>(b);
    touched_[i] = take(buffer_plan_.buffers[i].bytes);
  }
}

double Reuse::take(std::int64_t bytes) {
  double touched = std::numeric_limits<double>::max();
  std::int64_t found = 0;
  while (found < bytes && !free_.empty()) {
    auto piece = free_.lower_bound(bytes - found);
    if (piece == free_.end()) --piece;  // the largest: pieces that lie side by side grow together
    touched = std::min(touched, piece->second);
    found += piece->first;
    const std::int64_t rest = found - bytes;
    if (rest > 0) free_.emplace(rest, piece->second);
    free_.erase(piece);
  }
  return found < bytes ? kNever : touched;
}

double Reuse::touch(int buffer, double bytes) {
  double& last = touched_[static_cast<std::size_t>(buffer)];
  const double since = clock_ - last + bytes;
  clock_ += bytes;
  last = clock_;
  return since;
}

void Reuse::end(NodeId node) {
  for (int b : buffer_plan_.freed_after[static_cast<std::size_t>(node)]) {
    const auto i = static_cast<std::size_t>(b);
    free_.emplace(buffer_plan_.buffers[i].bytes, touched_[i]);
  }
}

}  // namespace tracestep
