// Growth of a text in the steps of a tokenizer.json, and what comes from a text's first character.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/temp_folder.h"
#include "tokens/text_steps.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

Json file_with(std::string_view normalizer, std::string_view added = "[]") {
  Json out = Json::parse(
      R"({"version": "1.0", "model": {"type": "BPE", "unk_token": "?", "merges": [],
          "vocab": {"a": 0, "b": 1, "!": 2, "▁": 3, "?": 4, "x": 5, "y": 6}}})",
      "test");
  out["normalizer"] = Json::parse(normalizer, "test");
  out["added_tokens"] = Json::parse(added, "test");
  return out;
}

std::unique_ptr<Tokenizer> parsed(const Json& file) {
  return parse_tokenizer(file.dump(), "T.json");
}

std::string replace(std::string_view from, std::string_view by) {
  Json out = Json::parse(R"({"type": "Replace", "pattern": {}})", "test");
  out["pattern"]["String"] = std::string(from);
  out["content"] = std::string(by);
  return out.dump();
}

std::string repeated(std::string_view step, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}{}", i == 0 ? "" : ",", step);
  return fmt::format(R"({{"type": "Sequence", "normalizers": [{}]}})", list);
}

std::string normalized(std::string_view normalizer, std::string_view text) {
  const Json json = Json::parse(normalizer, "test");
  std::size_t room = TextNormalizer::room_of(text.size());
  return TextNormalizer(TokenizerFields(json, "T.json: normalizer")).apply(text, room).text;
}

TEST(TextStepsTest, StepsThatGrowATextWithoutEndAreStopped) {
  const auto tokenizer = parsed(file_with(repeated(replace("a", "aa"), 22)));
  EXPECT_EQ(tokenizer->encode("b"), Ids{1});
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { tokenizer->encode(std::string(60, 'a')); }),
              HasSubstr("T.json: normalizer[14]: a text grows by more than"));
  const auto prepends =
      parsed(file_with(R"({"type": "Prepend", "prepend": ")" + std::string(700'000, 'x') + R"("})",
                       R"([{"id": 7, "content": "<s>", "normalized": false}])"));
  EXPECT_EQ(prepends->encode("a").size(), 700'001u);
  // All parts of a text together have the room of one.
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { prepends->encode("a<s>a"); }),
              HasSubstr("T.json: normalizer: a text grows by more than"));
}

TEST(TextStepsTest, AddedTokensThatGrowWithoutEndAreRefusedWhereTheFileIsRead) {
  const Json file = file_with(repeated(replace("a", "aaaa"), 20),
                              R"([{"id": 7, "content": "<a>", "normalized": true}])");
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { parsed(file); }),
              HasSubstr("a text grows by more than"));
  const Json longer = file_with(repeated(replace("a", "aa"), 18),
                                R"([{"id": 7, "content": "<a>", "normalized": true}])");
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { parsed(longer); }),
              HasSubstr("T.json: added_tokens[0]: a token has 262146 bytes, more than 65536"));
}

// Compatibility characters of Hebrew become three times as many bytes; blanks three times.
TEST(TextStepsTest, WhatPublishedStepsAddHasRoom) {
  const std::string steps = fmt::format(
      R"({{"type": "Sequence", "normalizers": [{{"type": "NFC"}}, {{"type": "Prepend", "prepend": "▁"}}, {}]}})",
      replace(" ", "▁"));
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += " \u0958";
  EXPECT_EQ(normalized(steps, text).size(), 3 + 100'000 * 9u);
}

TEST(TextStepsTest, ATemplateThatNamesItsTokensAgainAndAgainIsRefused) {
  Json file = file_with("null");
  file["post_processor"] = Json::parse(
      R"({"type": "TemplateProcessing", "special_tokens": {"s": {"id": "s", "ids": [0, 1, 2, 3]}}})",
      "test");
  std::string single;
  for (int i = 0; i < 300; ++i) single += R"({"SpecialToken": {"id": "s", "type_id": 0}},)";
  file["post_processor"]["single"] =
      Json::parse("[" + single + R"({"Sequence": {"id": "A"}}])", "test");
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { parsed(file); }),
              HasSubstr("T.json: post_processor: more than 1024 tokens before a text"));
}

TEST(TextStepsTest, AReplacementOfMetaspaceIsOneCharacter) {
  Json file = file_with("null");
  file["pre_tokenizer"] = Json::parse(R"({"type": "Metaspace", "replacement": "xy"})", "test");
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { parsed(file); }),
              HasSubstr("T.json: pre_tokenizer: its replacement has 2 bytes; one character"));
}

// "first" asks whether a part comes from the first character of the text.
TEST(TextStepsTest, NothingIsPutInFrontOfATextWhoseStartIsDeleted) {
  const auto ids_by = [](const std::string& normalizer, std::string_view text) {
    Json file = file_with(normalizer, R"([{"id": 5, "content": "x", "normalized": true}])");
    file["pre_tokenizer"] = Json::parse(
        R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})", "test");
    return parsed(file)->encode(text);
  };
  EXPECT_EQ(ids_by(R"({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": ""})", "b!"),
            Ids{2});
  EXPECT_EQ(ids_by(replace("a", ""), "b!"), (Ids{3, 1, 2}));
  EXPECT_EQ(ids_by(replace("a", "b"), "a!"), (Ids{3, 1, 2}));
  // The first character becomes two, of which the first is an added token.
  EXPECT_EQ(ids_by(replace("a", "xy"), "a!"), (Ids{5, 3, 6, 2}));
  EXPECT_EQ(ids_by(replace("ab", "xy"), "ab!"), (Ids{5, 6, 2}));
}

// Behind a step that prepends, a token is found with what is prepended, and stands for it.
TEST(TextStepsTest, AnAddedTokenDecodesToWhatItIsFoundAs) {
  const std::string steps = fmt::format(
      R"({{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "▁"}}, {}]}})",
      replace(" ", "▁"));
  const auto tokenizer = parsed(
      file_with(steps, R"([{"id": 7, "content": "<tag>", "normalized": true, "special": true},
                                  {"id": 5, "content": "x", "normalized": true}])"));
  const auto ids = tokenizer->encode("a <tag> x");
  EXPECT_EQ(ids, (Ids{3, 0, 7, 5}));
  EXPECT_EQ(tokenizer->decode(std::vector<std::int64_t>(ids.begin(), ids.end())), "a <tag> x");
  EXPECT_EQ(tokenizer->byte_count(7), 6);
  EXPECT_EQ(tokenizer->byte_count(5), 2);
}

}  // namespace
}  // namespace tracestep
