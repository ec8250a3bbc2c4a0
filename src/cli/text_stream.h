// Shows tokens as text while they arrive, without cutting characters in two.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/tokenizer.h"

namespace tracestep::cli {

class TextStream {
 public:
  // `show` gets text that is safe for a terminal, piece by piece. Without a tokenizer the token
  // numbers are shown.
  TextStream(const Tokenizer* tokenizer, std::function<void(std::string_view)> show);

  void add(std::int64_t token);
  // Shows what was held back: the start of a character that never ended.
  void finish();

 private:
  void show_from(std::string_view decoded, std::size_t end);

  const Tokenizer* tokenizer_;
  std::function<void(std::string_view)> show_;
  std::vector<std::int64_t> tokens_;  // not yet settled: decoded again with each new one
  std::size_t shown_bytes_ = 0;       // of their text
};

}  // namespace tracestep::cli
