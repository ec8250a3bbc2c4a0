// For tools/soak/tokenizer_ids.py: reads texts from stdin, each behind a line with its number of
// bytes. Answers each with a line of its tokens, a line with the bytes of what they decode to and
// the seconds that encoding took, and the decoded text with a newline.
//   tokenize TOKENIZER
#include <chrono>
#include <iostream>
#include <string>

#include "base/error.h"
#include "train/tokenizer.h"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    const auto tokenizer = tracestep::load_tokenizer(arguments[1]);
    std::size_t size = 0;
    for (std::string text; std::cin >> size && std::cin.get() == '\n';) {
      text.resize(size);
      std::cin.read(text.data(), static_cast<std::streamsize>(size));
      const auto start = std::chrono::steady_clock::now();
      const auto tokens = tokenizer->encode(text);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      std::string line;
      for (const std::int32_t id : tokens) line += fmt::format("{} ", id);
      const auto decoded =
          tokenizer->decode(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
      std::cout << line << "\n"
                << decoded.size() << " " << passed.count() << "\n"
                << decoded << std::endl;
    }
  } catch (const tracestep::Error& e) {
    std::cerr << e.what() << std::endl;
    return tracestep::exit_code(e.code());
  }
}
