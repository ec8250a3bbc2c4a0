// Tokenizers made here, as tokenizer.json: read back, every text has the tokens that it had.
#include "tokens/tokenizer_export.h"

#include <random>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/utf8.h"
#include "support/paths.h"
#include "support/temp_folder.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

// The stored texts that are hard for tokenizers, as far as they are text: another library is given
// no bytes.
std::vector<std::string> nasty_texts() {
  std::vector<std::string> out{"",      " ",       "\n",       "\n\n \n",  "   \n   x", "aaaaaaa",
                               "<unk>", "<0x41>B", "\u2581 a", "\r\n\t\v", "abababab",  "▁▁▁"};
  std::string text;
  for (const char c :
       content_of(testing::source_folder() / "tests/golden/tokenizers/texts.bin") + '\x1e') {
    if (c != '\x1e') {
      text += c;
    } else if (is_utf8(text) && text.size() < 2000) {
      out.push_back(std::exchange(text, {}));
    } else {
      text.clear();
    }
  }
  // Runs of few letters are where the order of merges tells.
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    text.clear();
    for (int k = 0; k < 40; ++k) text += " aabn\n.1é"[random() % 9];
    out.push_back(with_replacements(text));
  }
  return out;
}

// Indentation, runs of one letter and words that contain each other.
std::string training_text() {
  std::string out;
  for (int i = 0; i < 400; ++i) {
    out += fmt::format("{}banana ban anna {} naïve  {}\n", std::string(i % 9, ' '), i,
                       std::string(1 + i % 7, 'a'));
  }
  return out;
}

void expect_same_tokens(const Tokenizer& own) {
  const auto exported = parse_tokenizer(own.tokenizer_json(), "exported");
  EXPECT_EQ(exported->vocab_size(), own.vocab_size());
  for (const std::string& text : nasty_texts()) {
    const auto ids = own.encode(text);
    EXPECT_EQ(exported->encode(text), ids) << '"' << escaped(text) << '"';
    EXPECT_EQ(exported->decode(std::vector<std::int64_t>(ids.begin(), ids.end())),
              own.decode(std::vector<std::int64_t>(ids.begin(), ids.end())))
        << '"' << escaped(text) << '"';
  }
}

TEST(TokenizerExportTest, BytesHaveTheSameTokens) {
  expect_same_tokens(*byte_tokenizer());
}

TEST(TokenizerExportTest, TrainedPairsHaveTheSameTokens) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  for (const std::int64_t size : {320, 400, 700}) {
    expect_same_tokens(*train_bpe(training_text(), size));
  }
}

TEST(TokenizerExportTest, APublishedTokenizerIsExportedAsItIs) {
  const std::filesystem::path folder = testing::source_folder() / "tests/golden/tokenizers";
  EXPECT_EQ(load_tokenizer(folder / "gpt2.json")->tokenizer_json(),
            content_of(folder / "gpt2.json"));
  if (has_bpe()) {
    EXPECT_EQ(load_tokenizer(folder / "sp_llama.model")->tokenizer_json(), "");
  }
}

}  // namespace
}  // namespace tracestep
