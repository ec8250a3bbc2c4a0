// tokenizer.json: what it takes, and that it names what it does not. That tokens are equal to those
// of the library `tokenizers` is shown in tests/golden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/paths.h"
#include "support/temp_folder.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

// Letters and spaces, of which "ab", "abc" and "▁a" are pairs.
Json small_file() {
  return Json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 7, "content": "<end>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
              "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "▁": 3, "ab": 4, "abc": 5, "▁a": 6},
              "merges": ["a b", ["ab", "c"], "▁ a"]}})",
                     "test");
}

std::unique_ptr<Tokenizer> parsed(const Json& file) {
  return parse_tokenizer(file.dump(), "T.json");
}

void expect_refusal(const Json& file, const std::string& part) {
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { parsed(file); }), HasSubstr("T.json" + part));
}

Json with(std::string_view component, std::string_view text) {
  Json out = small_file();
  out[component] = Json::parse(text, "test");
  return out;
}

Json with_model_field(std::string_view field, Json value) {
  Json out = small_file();
  out["model"][field] = std::move(value);
  return out;
}

TEST(TokenizerJsonTest, MergesTheEarliestPairFirst) {
  const auto tokenizer = parsed(small_file());
  EXPECT_EQ(tokenizer->encode("abcab a"), (Ids{5, 4, 6}));
  EXPECT_EQ(tokenizer->encode("ab<end>c"), (Ids{4, 7, 2}));
  EXPECT_EQ(tokenizer->encode(""), Ids());
  EXPECT_EQ(tokenizer->vocab_size(), 8);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int64_t>{5, 6, 7}), "abc a<end>");
  EXPECT_EQ(tokenizer->byte_count(6), 2);
  EXPECT_EQ(tokenizer->byte_count(8), std::nullopt);
}

// Where a pair ends in a space, a text cannot be cut before it.
TEST(TokenizerJsonTest, PairsMayReachOverSpaces) {
  Json file = small_file();
  file["model"]["vocab"]["c▁"] = 8;
  file["model"]["merges"] = Json::parse(R"(["c ▁", "▁ a"])", "test");
  file["added_tokens"] = Json::array();
  EXPECT_EQ(parsed(file)->encode("c a b a"), (Ids{8, 0, 3, 1, 6}));
}

TEST(TokenizerJsonTest, KeepsItsFileAsItIs) {
  const std::string content = small_file().dump(2) + "\n";
  EXPECT_EQ(parse_tokenizer(content, "T.json")->content(), content);
}

TEST(TokenizerJsonTest, ATextWithoutATokenIsNotPassedOver) {
  const auto tokenizer = parsed(small_file());
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { tokenizer->encode("abx"); }),
              HasSubstr("\"x\" has no token"));
}

TEST(TokenizerJsonTest, UnknownTextHasNoNumberOfBytes) {
  Json file = small_file();
  file["model"]["vocab"]["?"] = 7;
  file["model"]["unk_token"] = "?";
  file["added_tokens"] = Json::array();
  EXPECT_EQ(parsed(file)->encode("xya"), (Ids{7, 7, 0}));
  EXPECT_EQ(parsed(file)->byte_count(7), std::nullopt);
  file["model"]["fuse_unk"] = true;
  EXPECT_EQ(parsed(file)->encode("xya"), (Ids{7, 0}));
}

TEST(TokenizerJsonTest, NumbersThatAreLeftOutHaveNoText) {
  Json file = small_file();
  file["model"]["vocab"]["z"] = 20;
  file["added_tokens"] = Json::array();
  const auto tokenizer = parsed(file);
  EXPECT_EQ(tokenizer->vocab_size(), 21);
  EXPECT_EQ(tokenizer->byte_count(10), std::nullopt);
  EXPECT_EQ(tokenizer->byte_count(20), 1);
}

TEST(TokenizerJsonTest, ALongTextTakesTimeOfItsLengthOnly) {
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(parsed(small_file())->encode(text).size(), text.size());
  const auto llama =
      load_tokenizer(testing::source_folder() / "tests/golden/tokenizers/llama3.json");
  for (const char* part : {"a", " ", "1", "漢", "\n", "\xff", "e\u0301"}) {
    std::string repeated;
    while (repeated.size() < (std::size_t{1} << 18)) repeated += part;
    EXPECT_GT(llama->encode(repeated).size(), 0u) << part;
  }
}

TEST(TokenizerJsonTest, UnknownKindsAndFieldsAreNamed) {
  expect_refusal(with("normalizer", R"({"type": "NFKC"})"), ": normalizer: the normalizer NFKC");
  expect_refusal(with("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"},
                                        {"type": "Lowercase"}]})"),
                 ": normalizer[1]: the normalizer Lowercase");
  expect_refusal(with("normalizer", R"({"type": "NFC", "form": 2})"),
                 ": normalizer: its field \"form\" is not known");
  expect_refusal(
      with("normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})"),
      ": normalizer: its pattern is empty");
  expect_refusal(with("pre_tokenizer", R"({"type": "Whitespace"})"),
                 ": pre_tokenizer: the pre-tokenizer Whitespace");
  expect_refusal(with("pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"},
                                           "behavior": "Sideways", "invert": false})"),
                 ": pre_tokenizer: the behavior Sideways");
  expect_refusal(with("pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [
                      {"type": "ByteLevel", "add_prefix_space": false}, {"type": "Digits"}]})"),
                 ": pre_tokenizer[1]: a step after ByteLevel");
  expect_refusal(with("post_processor", R"({"type": "BertProcessing"})"),
                 ": post_processor: the post-processor BertProcessing");
  expect_refusal(with("later", "{}"), ": its field \"later\" is not known");
  expect_refusal(with("version", "\"2.0\""), ": its version is 2.0");
  expect_refusal(with_model_field("type", "Unigram"), ": model: models of type Unigram");
  expect_refusal(with_model_field("type", "WordPiece"), ": model: models of type WordPiece");
  expect_refusal(with_model_field("dropout", 0.1), ": model: dropout is 0.1");
  expect_refusal(with_model_field("end_of_word_suffix", "</w>"), ": model: end_of_word_suffix");
  expect_refusal(with_model_field("byte_fallback", 1), ": model: \"byte_fallback\" is 1");
  expect_refusal(with_model_field("max_input_chars_per_word", 100), ": model: its field");
}

TEST(TokenizerJsonTest, VocabulariesThatContradictThemselvesAreRefused) {
  expect_refusal(with_model_field("vocab", Json::parse(R"({"a": 0, "b": 0})", "test")),
                 ": model: \"b\" has the id 0 of another token");
  expect_refusal(with_model_field("vocab", Json::parse(R"({"a": -1})", "test")), ": model: the id");
  expect_refusal(with_model_field("vocab", Json::parse(R"({"a": 9999999})", "test")),
                 ": model: \"a\" has the id 9999999 in a vocabulary of 1");
  expect_refusal(with_model_field("merges", Json::parse(R"(["a b c"])", "test")),
                 ": model: the merge \"a b c\" is not of two tokens");
  expect_refusal(with_model_field("merges", Json::parse(R"([["c", "a"]])", "test")),
                 ": model: a merge names \"ca\"");
  expect_refusal(with_model_field("merges", Json::parse("[3]", "test")), ": model: a merge is");
  Json moved = small_file();
  moved["added_tokens"] = Json::parse(R"([{"id": 9, "content": "<end>"}])", "test");
  expect_refusal(moved,
                 ": added_tokens[0]: \"<end>\" has the id 9, where the vocabulary gives it 7");
  moved["added_tokens"] =
      Json::parse(R"([{"id": 7, "content": "<e>"}, {"id": 8, "content": "<e>"}])", "test");
  expect_refusal(moved, ": \"<e>\" is there twice");
}

// An expression that Oniguruma, for which files are written, reads otherwise is not taken.
TEST(TokenizerJsonTest, ExpressionsThatTwoLibrariesReadOtherwiseAreRefused) {
  const auto message = [](std::string_view expression) {
    Json file = small_file();
    Json split = Json::object();
    split["type"] = "Split";
    split["pattern"]["Regex"] = expression;
    split["behavior"] = "Isolated";
    file["pre_tokenizer"] = split;
    return message_of(ErrorCode::kInput, [&] { parsed(file); });
  };
  for (const char* bad :
       {"\\w+", "^a", "a$", "[a[b]]", "[a&&b]", "(?i)a", "(?i:\\p{Lu})", "a{,3}", "a{2}+", "a{2}?",
        "\\p{Han}", "\\bword", "(*LIMIT_MATCH=1)a", "\\1", "[]a]"}) {
    EXPECT_THAT(message(bad), HasSubstr("is not taken from")) << bad;
  }
  EXPECT_THAT(message("(a"), HasSubstr("is malformed: missing closing parenthesis"));
  EXPECT_THAT(message("a*"), HasSubstr("may match nothing"));
  EXPECT_THAT(message(std::string(20'000, 'a')), HasSubstr("more than 16384"));
  EXPECT_THAT(message(std::string(60, '(') + "a" + std::string(60, ')')),
              HasSubstr("is malformed"));
}

TEST(TokenizerJsonTest, AnExpressionThatGoesBackWithoutEndIsStopped) {
  Json file = small_file();
  file["pre_tokenizer"] = Json::parse(
      R"({"type": "Split", "pattern": {"Regex": "(a+)+(a+)+(a+)+[bd]"}, "behavior": "Isolated"})",
      "t");
  const auto tokenizer = parsed(file);
  EXPECT_THAT(
      message_of(ErrorCode::kInput, [&] { tokenizer->encode(std::string(5000, 'a') + "c"); }),
      HasSubstr("its expression stops at byte 0 of 5001 of a text"));
}

TEST(TokenizerJsonTest, ThePartsThatFamiliesUseAreTaken) {
  for (const char* good :
       {R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)", R"((?i:'s|[dmt]|ll)|\d{1,3}|(?=a)b|(?<!x)y)",
        R"([!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|\p{Lu}\P{M})",
        "[\u4e00-\u9fa5]+|a{2,}"}) {
    Json file = small_file();
    Json split = Json::parse(R"({"type": "Split", "pattern": {}, "behavior": "Isolated"})", "t");
    split["pattern"]["Regex"] = good;
    file["pre_tokenizer"] = split;
    EXPECT_EQ(parsed(file)->encode("ab").size(), 1u) << good;
  }
}

TEST(TokenizerJsonTest, SequencesInSequencesEndSomewhere) {
  std::string text = R"({"type": "NFC"})";
  for (int i = 0; i < 20; ++i) text = R"({"type": "Sequence", "normalizers": [)" + text + "]}";
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { parsed(with("normalizer", text)); }),
              HasSubstr("sequences lie in each other 8 deep"));
}

TEST(TokenizerJsonTest, AFolderIsThatOfAPublishedModel) {
  const TempFolder folder;
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { load_tokenizer(folder.path()); }),
              HasSubstr("has neither tokenizer.json nor tokenizer.model"));
  folder.write("tokenizer.json", small_file().dump());
  EXPECT_EQ(load_tokenizer(folder.path())->encode("ab"), Ids{4});
  // The name of the file does not matter.
  folder.write("other", " \n" + small_file().dump());
  EXPECT_EQ(load_tokenizer(folder / "other")->encode("ab"), Ids{4});
}

TEST(TokenizerJsonTest, TheModelOfSentencePieceIsReadWhereThereIsNoJson) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  const TempFolder folder;
  const auto trained = train_bpe("the quick brown fox jumps over the lazy dog", 300);
  trained->save(folder / "tokenizer.model");
  EXPECT_EQ(load_tokenizer(folder.path())->encode("the fox"), trained->encode("the fox"));
  folder.write("tokenizer.json", small_file().dump());
  EXPECT_EQ(load_tokenizer(folder.path())->encode("ab"), Ids{4});
}

}  // namespace
}  // namespace tracestep
