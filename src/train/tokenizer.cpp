#include "train/tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "train/bpe_tokenizer.h"

namespace tracestep {
namespace {

constexpr std::string_view kByteFile = "tracestep byte tokenizer 1\n";
constexpr std::int64_t kByteCount = 256;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20;  // a million pieces and more

class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  std::int64_t vocab_size() const override { return kByteCount; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> out(text.size());
    std::ranges::transform(text, out.begin(), [](char c) { return static_cast<unsigned char>(c); });
    return out;
  }

  std::string decode(std::span<const std::int64_t> tokens) const override {
    std::string out;
    for (std::int64_t token : tokens) out += static_cast<char>(check_token(token, kByteCount));
    return out;
  }

  void save(const std::filesystem::path& path) const override { write_file(path, kByteFile); }
};

}  // namespace

std::int64_t check_token(std::int64_t token, std::int64_t vocab_size) {
  if (token < 0 || token >= vocab_size) {
    fail_input("tokenizer", "token {} is beyond the vocabulary of {}", token, vocab_size);
  }
  return token;
}

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  const std::string content = read_text_file(path, "tokenizer", kMaxFileBytes);
  if (content == kByteFile) return byte_tokenizer();
  if (content.empty()) fail_input("tokenizer", "{} is empty", path.string());
  return load_bpe(content, path.string());
}

}  // namespace tracestep
