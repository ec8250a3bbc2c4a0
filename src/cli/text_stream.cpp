#include "cli/text_stream.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"

namespace tracestep::cli {
namespace {

// Returns how many bytes at the end of `text` may begin a longer character: at most three.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xc0u) == 0x80u) continue;  // in the middle of a character
    const std::size_t length = c >= 0xf0u ? 4 : c >= 0xe0u ? 3 : c >= 0xc0u ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

// How many tokens are decoded together: byte-pair pieces only depend on their neighbours.
constexpr std::size_t kWindow = 64;

}  // namespace

std::vector<std::int64_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text) {
  const auto start = tokenizer.start(), tokens = tokenizer.encode(text);
  std::vector<std::int64_t> out(start.begin(), start.end());
  out.insert(out.end(), tokens.begin(), tokens.end());
  return out;
}

std::span<const std::int64_t> text_of_prompt(const Tokenizer* tokenizer,
                                             std::span<const std::int64_t> prompt) {
  if (tokenizer == nullptr) return prompt;
  const auto start = tokenizer->start();
  const bool has_start =
      prompt.size() >= start.size() && std::ranges::equal(start, prompt.first(start.size()));
  return has_start ? prompt.subspan(start.size()) : prompt;
}

TextStream::TextStream(const Tokenizer* tokenizer, std::function<void(std::string_view)> show)
    : tokenizer_(tokenizer), show_(std::move(show)) {}

void TextStream::show_from(std::string_view decoded, std::size_t end) {
  if (end <= shown_bytes_) return;
  show_(printable(decoded.substr(shown_bytes_, end - shown_bytes_)));
  shown_bytes_ = end;
}

void TextStream::add(std::int64_t token) {
  if (tokenizer_ == nullptr) {
    show_(fmt::format("{}{}", tokens_.empty() ? "" : " ", token));
    tokens_ = {token};
    return;
  }
  if (token >= tokenizer_->vocab_size()) return add_without_text();
  tokens_.push_back(token);
  const std::string text = tokenizer_->decode(tokens_);
  const std::size_t held = unfinished_bytes(text);
  show_from(text, text.size() - held);
  if (held > 0 || tokens_.size() < kWindow) return;
  // Starts a new window with the last token, so that decoding stays cheap for long texts.
  tokens_.erase(tokens_.begin(), tokens_.end() - 1);
  shown_bytes_ = tokenizer_->decode(tokens_).size();
}

// Shows U+FFFD for an entry of the model's vocabulary that its tokenizer lacks.
void TextStream::add_without_text() {
  finish();
  tokens_.clear();
  shown_bytes_ = 0;
  show_("\uFFFD");
}

void TextStream::finish() {
  if (tokenizer_ == nullptr || tokens_.empty()) return;
  const std::string text = tokenizer_->decode(tokens_);
  show_from(text, text.size());
}

}  // namespace tracestep::cli
