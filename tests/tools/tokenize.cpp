// For tools/soak/tokenizer_ids.py and random_tokenizers.py.
//   tokenize TOKENIZER
// reads texts from stdin, each behind a line with its number of bytes. It answers each with a line
// of its tokens, a line with the bytes of what they decode to and the seconds that encoding took,
// and the decoded text with a newline.
//   tokenize
// reads tokenizers, too, each behind a line with "json" and its number of bytes, and goes on where
// something is refused: it answers with "!" and the message instead, or with "ok" to a tokenizer.
#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.h"
#include "tokens/tokenizer.h"

namespace {

// The number of bytes is read from stdin, which stands before it.
bool read_bytes(std::string& bytes) {
  std::size_t size = 0;
  if (!(std::cin >> size) || std::cin.get() != '\n') return false;
  bytes.resize(size);
  std::cin.read(bytes.data(), static_cast<std::streamsize>(size));
  return true;
}

void answer(const tracestep::Tokenizer& tokenizer, const std::string& text) {
  const auto start = std::chrono::steady_clock::now();
  const auto tokens = tokenizer.encode(text);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  std::string line;
  for (const std::int32_t id : tokens) line += fmt::format("{} ", id);
  const auto decoded = tokenizer.decode(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
  std::cout << line << "\n" << decoded.size() << " " << passed.count() << "\n" << decoded << "\n";
}

void answer_all() {
  std::unique_ptr<tracestep::Tokenizer> tokenizer;
  while (std::cin >> std::ws) {
    const bool is_tokenizer = std::cin.peek() == 'j';
    std::string word, bytes;
    if (is_tokenizer) std::cin >> word;
    if (!read_bytes(bytes)) return;
    try {
      if (is_tokenizer) {
        tokenizer = tracestep::parse_tokenizer(bytes, "it");
        std::cout << "ok\n";
      } else {
        answer(*tokenizer, bytes);
      }
    } catch (const tracestep::Error& e) {
      std::cout << "!" << e.what() << "\n";
    }
    std::cout << std::flush;
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 2) return 2;
  try {
    if (count == 1) return answer_all(), 0;
    const auto tokenizer = tracestep::load_tokenizer(arguments[1]);
    for (std::string text; read_bytes(text); std::cout << std::flush) answer(*tokenizer, text);
  } catch (const tracestep::Error& e) {
    std::cerr << e.what() << std::endl;
    return tracestep::exit_code(e.code());
  }
}
