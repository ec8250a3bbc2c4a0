#include "tokens/tokenizer.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "tokens/tokenizer_export.h"
#include "tokens/tokenizer_kinds.h"

namespace tracestep {
namespace {

constexpr std::string_view kByteFile = "tracestep byte tokenizer 1\n";
constexpr std::int64_t kByteCount = 256;

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

  std::optional<std::int64_t> byte_count(std::int64_t token) const override {
    return token >= 0 && token < kByteCount ? std::optional<std::int64_t>(1) : std::nullopt;
  }

  std::string content() const override { return std::string(kByteFile); }
  std::string tokenizer_json() const override { return tokenizer_json_of_bytes(); }
};

}  // namespace

std::int64_t check_token(std::int64_t token, std::int64_t vocab_size) {
  if (token < 0 || token >= vocab_size) {
    fail_input("tokenizer"_field, "token {} is beyond the vocabulary of {}", token, vocab_size);
  }
  return token;
}

std::string Tokenizer::hash() const {
  const std::string file = content();
  return hash_text(std::as_bytes(std::span(file)));
}

bool Tokenizer::is_saved_at(const std::filesystem::path& path) const {
  std::error_code missing;
  const std::string own = content();
  return std::filesystem::file_size(path, missing) == own.size() && !missing &&
         read_text_file(path, "tokenizer"_field, kMostTokenizerBytes) == own;
}

void Tokenizer::save(const std::filesystem::path& path) const {
  if (!is_saved_at(path)) write_file(path, content());
}

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

bool is_tokenizer_json(std::string_view content) {
  const std::size_t start = content.find_first_not_of(" \t\r\n");
  return start != content.npos && content[start] == '{';
}

std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& content, const std::string& origin) {
  if (content == kByteFile) return byte_tokenizer();
  if (content.empty()) fail_input("tokenizer"_field, "{} is empty", origin);
  if (is_tokenizer_json(content)) return parse_tokenizer_json(content, origin);
  return load_bpe(content, origin);
}

std::filesystem::path tokenizer_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  for (const char* name : {kTokenizerJson, kTokenizerModel}) {
    if (std::filesystem::exists(path / name, ignored)) return path / name;
  }
  fail_input("tokenizer"_field, "the folder {} has neither {} nor {}", path.string(),
             kTokenizerJson, kTokenizerModel);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  const std::filesystem::path file = tokenizer_file(path);
  return parse_tokenizer(read_text_file(file, "tokenizer"_field, kMostTokenizerBytes),
                         file.string());
}

}  // namespace tracestep
