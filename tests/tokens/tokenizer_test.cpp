#include "tokens/tokenizer.h"

#include <sys/stat.h>

#include <vector>

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "tokens/text_source.h"

namespace tracestep {
namespace {

std::vector<std::int64_t> wide(const std::vector<std::int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.decode(wide(tokenizer.encode(text)));
}

std::string sample_text() {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += fmt::format("the training step number {} reads tokens,\n\twrites  gradients\n", i);
  }
  return text;
}

class BpeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  }
};

TEST(TokenizerTest, BytesAreTheirOwnTokens) {
  const auto tokenizer = byte_tokenizer();
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->encode("\xff")[0], 255);
  EXPECT_EQ(round_trip(*tokenizer, every), every);
  for (std::int64_t id : {-1, 256}) {
    EXPECT_TRUE(contains(
        message_of(ErrorCode::kInput, [&] { tokenizer->decode(std::vector<std::int64_t>{id}); }),
        "beyond the vocabulary of 256"));
  }
}

TEST_F(BpeTest, TheBytesOfTokensAreThoseOfTheirText) {
  const std::string text = sample_text();
  const auto bpe = train_bpe(text, 500), bytes = byte_tokenizer();
  for (const std::string& other :
       {text, std::string("  two  spaces "), std::string("tabs\t\tand\r\nreturns"),
        std::string("\xe6\xbc\xa2\xe5\xad\x97 unseen \xf0\x9f\x98\x80")}) {
    for (const Tokenizer* tokenizer : {bpe.get(), bytes.get()}) {
      std::int64_t sum = 0;
      for (const std::int32_t id : tokenizer->encode(other)) sum += *tokenizer->byte_count(id);
      EXPECT_EQ(sum, std::ssize(other)) << other.substr(0, 40);
    }
  }
  EXPECT_FALSE(bpe->byte_count(bpe->vocab_size()));
  EXPECT_FALSE(bytes->byte_count(-1));
}

TEST_F(BpeTest, BpeCompressesAndGivesTheTextBackExactly) {
  const std::string text = sample_text();
  const auto tokenizer = train_bpe(text, 500);
  EXPECT_LE(tokenizer->vocab_size(), 500);
  EXPECT_LT(tokenizer->encode(text).size(), text.size() / 3);
  for (std::int32_t id : tokenizer->encode(text)) ASSERT_LT(id, tokenizer->vocab_size());
  EXPECT_EQ(round_trip(*tokenizer, text), text);
  for (const char* other : {"", " ", "\n", "\n\n  \n", "  two  spaces ", "tabs\t\tand\r\nreturns",
                            "\xe6\xbc\xa2\xe5\xad\x97 unseen \xf0\x9f\x98\x80", "no newline"}) {
    EXPECT_EQ(round_trip(*tokenizer, other), other);
  }
  const std::string long_line(50'000, 'x');
  EXPECT_EQ(round_trip(*tokenizer, long_line), long_line);
  EXPECT_EQ(round_trip(*tokenizer, "a\xff"), "a\xef\xbf\xbd");
}

TEST_F(BpeTest, BpeTrainingGivesTheSameModelEveryTime) {
  const TempFolder folder;
  train_bpe(sample_text(), 400)->save(folder / "a");
  train_bpe(sample_text(), 400)->save(folder / "b");
  EXPECT_EQ(content_of(folder / "a"), content_of(folder / "b"));
}

TEST_F(BpeTest, AShortTextGivesASmallerVocabulary) {
  const auto tokenizer = train_bpe("a few words only", 10'000);
  EXPECT_GE(tokenizer->vocab_size(), 256);
  EXPECT_LT(tokenizer->vocab_size(), 400);
  EXPECT_EQ(round_trip(*tokenizer, "other letters: qzj"), "other letters: qzj");
}

TEST_F(BpeTest, ImpossibleTrainingIsRefused) {
  message_of(ErrorCode::kUsage, [] { train_bpe("text", 256); });
  message_of(ErrorCode::kUsage, [] { train_bpe("text", 1'000'001); });
  message_of(ErrorCode::kInput, [] { train_bpe("", 1000); });
  message_of(ErrorCode::kInput, [] { train_bpe(" \n\n", 1000); });
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { train_bpe(letters, 300); }),
                       "has no room for the characters of this text"));
}

TEST_F(BpeTest, BothKindsAreSavedAndLoaded) {
  const TempFolder folder;
  const auto bpe = train_bpe(sample_text(), 400);
  bpe->save(folder / "bpe");
  byte_tokenizer()->save(folder / "bytes");
  EXPECT_EQ(load_tokenizer(folder / "bpe")->encode("the step"), bpe->encode("the step"));
  EXPECT_EQ(load_tokenizer(folder / "bpe")->name(), "bpe");
  EXPECT_EQ(load_tokenizer(folder / "bytes")->name(), "bytes");
}

TEST_F(BpeTest, FilesThatAreNoTokenizerAreRefused) {
  const TempFolder folder;
  std::string cut;
  train_bpe(sample_text(), 400)->save(folder / "bpe");
  cut = content_of(folder / "bpe");
  for (const std::string& content : {std::string(), std::string("hello"), std::string(100, '\0'),
                                     cut.substr(0, cut.size() / 2)}) {
    folder.write("bad", content);
    message_of(ErrorCode::kInput, [&] { load_tokenizer(folder / "bad"); });
  }
  message_of(ErrorCode::kInput, [&] { load_tokenizer(folder / "missing"); });
}

TEST(TokenizerTest, AFileOfAnySizeIsRefusedBeforeItIsRead) {
  const TempFolder folder;
  folder.write("large", "");
  std::filesystem::resize_file(folder / "large", std::uint64_t{1} << 40);
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { load_tokenizer(folder / "large"); }),
                       "at most 64.00 MiB"));
}

TEST(TextSourceTest, ALargeBinaryFileInAFolderIsPassedOver) {
  const TempFolder folder;
  folder.write("a.txt", "A");
  folder.write("image", "");
  std::filesystem::resize_file(folder / "image", std::uint64_t{1} << 40);
  const std::vector<std::filesystem::path> paths{folder.path()};
  const TextSource source = read_text(paths);
  EXPECT_EQ(source.text, "A");
  EXPECT_EQ(source.left_out.at("binary").size(), 1u);
}

TEST(TextSourceTest, AFolderIsReadInOrderWithoutHiddenBinaryOrLinkedFiles) {
  const TempFolder folder;
  folder.write("b.txt", "B");
  folder.write("a/z.txt", "Z\n");
  folder.write("a/y.txt", "Y");
  folder.write("empty", "");
  folder.write(".hidden", "no");
  folder.write(".git/config", "no");
  folder.write("binary", std::string_view("a\0b", 3));
  std::filesystem::create_symlink(folder.path(), folder / "loop");
  std::filesystem::create_symlink("b.txt", folder / "link");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);

  const std::vector paths = {folder.path()};
  const TextSource source = read_text(paths);
  EXPECT_EQ(source.text, "Y\nZ\nB");
  EXPECT_EQ(source.files.size(), 3u);
  std::map<std::string, std::size_t> left_out;
  for (const auto& [why, files] : source.left_out) left_out[why] = files.size();
  EXPECT_EQ(left_out,
            (std::map<std::string, std::size_t>{
                {"a link", 2}, {"binary", 1}, {"empty", 1}, {"hidden", 2}, {"no file", 1}}));
  EXPECT_TRUE(contains(words_of(source), "3 files, 5 B; left out: "));
}

TEST(TextSourceTest, FilesAreReadByteForByteAndJoinedByNewlines) {
  const TempFolder folder;
  const std::vector one = {folder.write("1", "\xff one")};
  EXPECT_EQ(read_text(one).text, "\xff one");
  const std::vector two = {folder / "1", folder.write("2", "two\n"), folder / "1"};
  EXPECT_EQ(read_text(two).text, "\xff one\ntwo\n\xff one");
}

TEST(TextSourceTest, Utf16WithAMarkIsReadAndMarksAreNoText) {
  using namespace std::string_literals;
  const TempFolder folder;
  const std::vector little = {folder.write("little", "\xff\xfeh\0\xe9\0"s)};
  const std::vector big = {folder.write("big", "\xfe\xff\0h\xd8\x3d\xde\x00"s)};
  const std::vector marked = {folder.write("marked", "\xef\xbb\xbfhi")};
  EXPECT_EQ(read_text(little).text, "hé");
  EXPECT_EQ(read_text(big).text, "h😀");
  EXPECT_EQ(read_text(marked).text, "hi");
  EXPECT_EQ(read_text(std::vector{folder.path()}).text, "h😀\nhé\nhi");
}

TEST(TextSourceTest, OtherEncodingsAreNamedInTheirErrorAndInWhatIsLeftOut) {
  using namespace std::string_literals;
  const TempFolder folder;
  folder.write("a/text", "A");
  const auto refused = [&](const std::string& name, const std::string& bytes) {
    const std::vector paths = {folder.write("a/" + name, bytes)};
    return message_of(ErrorCode::kInput, [&] { read_text(paths); });
  };
  EXPECT_TRUE(contains(refused("wide", "\xff\xfe\0\0h\0\0\0"s), "is no text in UTF-8 (UTF-32)"));
  EXPECT_TRUE(
      contains(refused("bare", "h\0i\0!\0"s), "(UTF-16 without a mark?); save it as UTF-8"));
  EXPECT_TRUE(contains(refused("odd", "\xff\xfeh\0i"s), "is a binary file"));
  EXPECT_TRUE(contains(refused("half", "\xff\xfe\x3d\xd8h\0"s), "is a binary file"));
  const TextSource source = read_text(std::vector{folder / "a"});
  EXPECT_EQ(source.text, "A");
  EXPECT_EQ(source.left_out.at("UTF-32").front(), folder / "a/wide");
  EXPECT_EQ(source.left_out.at("UTF-16 without a mark?").front(), folder / "a/bare");
  EXPECT_EQ(source.left_out.at("binary").size(), 2u);
}

TEST(TextSourceTest, OfManyFilesLeftOutThreeAreNamed) {
  const TempFolder folder;
  folder.write("text", "A");
  for (const char* name : {"1", "2", "3", "4", "5"}) folder.write(name, std::string_view("\0", 1));
  const std::string words = words_of(read_text(std::vector{folder.path()}));
  EXPECT_TRUE(contains(words, "/3 and 2 more (binary)")) << words;
}

TEST(TextSourceTest, PathsWithoutTextAreRefused) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  folder.write("binary", std::string_view("\0", 1));
  folder.write("nothing", "");
  std::filesystem::create_directory(folder / "void");
  const auto refused = [&](const char* name) {
    const std::vector paths = {folder / name};
    return message_of(ErrorCode::kInput, [&] { read_text(paths); });
  };
  EXPECT_TRUE(contains(refused("missing"), "does not exist"));
  EXPECT_TRUE(contains(refused("fifo"), "not a regular file"));
  EXPECT_TRUE(contains(refused("binary"), "is a binary file"));
  EXPECT_TRUE(contains(refused("nothing"), "there is no text"));
  EXPECT_TRUE(contains(refused("void"), "there is no text"));
}

}  // namespace
}  // namespace tracestep
