// Documents from JSON lines and from files: which tokens count, and which rows are broken.
#include "tokens/documents.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "tokens/packed_rows.h"

namespace tracestep {
namespace {

DocumentSet read(const TempFolder& folder, double most_broken = 0.0, std::string_view chat = "") {
  const std::vector<std::filesystem::path> paths{folder.path()};
  const auto tokenizer = byte_tokenizer();
  return read_documents(read_text(paths),
                        {.chat = find_chat_template(chat), .end = {0}, .most_broken = most_broken},
                        *tokenizer);
}

// The text of the tokens: those that count in brackets; an end of text as "|".
std::string shown(const DocumentSet& set) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(set.tokens->size()));
  set.tokens->read(0, tokens);
  std::string out;
  bool counts = false;
  for (const std::int64_t token : tokens) {
    if (is_trained(token) != counts) out += counts ? "]" : "[";
    counts = is_trained(token);
    out += id_of(token) == 0 ? '|' : static_cast<char>(id_of(token));
  }
  return out + (counts ? "]" : "");
}

TEST(DocumentsTest, WholeTextsCount) {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\", \"id\": 3}\n");
  folder.write("b.txt", "a file\n");
  const DocumentSet set = read(folder);
  EXPECT_EQ(shown(set), "[one|two|a file\n|]");
  EXPECT_FALSE(set.tokens->masks_targets());
  const auto begins = set.tokens->documents();
  EXPECT_EQ(std::vector<std::int64_t>(begins.begin(), begins.end()),
            (std::vector<std::int64_t>{0, 4, 8}));
  EXPECT_EQ(set.words, "3 documents");
}

TEST(DocumentsTest, OfPromptsOnlyTheAnswersCount) {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"prompt\": \"2+2=\", \"completion\": \"4\"}\n");
  const DocumentSet set = read(folder);
  EXPECT_EQ(shown(set), "2+2=[4|]");
  EXPECT_TRUE(set.tokens->masks_targets());
  // The targets are those that count: of "=" it is "4".
  const PackedRows packed(set.tokens, 5);
  const Batch batch = packed.batch(std::vector<std::int64_t>{0});
  const auto targets = batch.targets.as<std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(targets.begin(), targets.end()),
            (std::vector<std::int64_t>{kNoTarget, kNoTarget, kNoTarget, '4', 0}));
  EXPECT_EQ(batch.counted, 2);
}

TEST(DocumentsTest, OfConversationsTheAssistantCounts) {
  const TempFolder folder;
  folder.write("a.jsonl", R"({"messages": [{"role": "user", "content": "Hi"},)"
                          R"( {"role": "assistant", "content": "Ho"}]})");
  EXPECT_EQ(shown(read(folder, 0.0, "chatml")),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Ho<|im_end|>]\n");
}

TEST(DocumentsTest, BrokenRowsAreCountedAndNamed) {
  const TempFolder folder;
  folder.write("a.jsonl",
               "{\"text\": \"one\"}\nno json\n{\"texts\": 1}\n{\"text\": 7}\n[1]\n"
               "{\"prompt\": \"a\", \"completion\": \"\"}\n{\"messages\": []}\n");
  const DocumentSet set = read(folder, 0.9);
  EXPECT_EQ(set.documents, 1);
  EXPECT_EQ(set.broken, 6);
  for (const char* part :
       {"6 of 7 rows broken: ", "a.jsonl:2: ", "a.jsonl:3: it has neither text nor messages nor",
        "a.jsonl:4: \"text\" is no text", " and 3 more"}) {
    EXPECT_TRUE(contains(set.words, part)) << part << " in " << set.words;
  }
  const std::string refused = message_of(ErrorCode::kInput, [&] { read(folder, 0.85); });
  EXPECT_TRUE(contains(refused, "85 % of the rows may be broken, 6 of 7 rows broken"));
}

TEST(DocumentsTest, AFileOfJsonMayBeOneArrayOfRows) {
  const TempFolder folder;
  folder.write("a.json", "\n[{\"text\": \"one\"},\n  {\"texts\": 1}, {\"text\": \"two\"}]\n");
  folder.write("b.json", "{\"text\": \"three\"}\n");
  const DocumentSet set = read(folder, 0.5);
  EXPECT_EQ(shown(set), "[one|two|three|]");
  EXPECT_TRUE(contains(set.words, "1 of 4 rows broken: "));
  EXPECT_TRUE(contains(set.words, "a.json[1]: it has neither text nor messages nor"));
  folder.write("a.json", "[{\"text\": \"one\"},");
  const std::string refused = message_of(ErrorCode::kInput, [&] { read(folder, 0.5); });
  EXPECT_TRUE(contains(refused, "begins as an array"));
  EXPECT_TRUE(contains(refused, "JSON lines"));
}

TEST(DocumentsTest, EachKindOfBrokenRowIsToldByItself) {
  const std::pair<const char*, const char*> rows[] = {
      {"{\"prompt\": \"a\"}", "\"completion\" is no text"},
      {"{\"prompt\": \"a\", \"completion\": \"\"}", "nothing in it counts"},
      {"[1]", "it is no object"},
      {"{\"messages\": 1}", "\"messages\" is no list"},
      {"{\"messages\": [1]}", "a message is no object"},
      {"{\"messages\": [{\"role\": \"user\"}]}", "\"content\" is no text"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "nothing in it counts"}};
  for (const auto& [row, why] : rows) {
    const TempFolder folder;
    folder.write("a.jsonl", std::string("{\"text\": \"one\"}\n") + row);
    const DocumentSet set = read(folder, 0.5, "chatml");
    EXPECT_TRUE(contains(set.words, std::string("a.jsonl:2: ") + why)) << set.words;
  }
  const TempFolder folder;
  folder.write("a.jsonl", "{\"text\": \"one\"}\n{\"messages\": []}");
  EXPECT_TRUE(contains(read(folder, 0.5).words, "no chat template is chosen"));
}

// A tokenizer whose tokens are pairs of letters: a boundary may lie within one.
class Pairs : public Tokenizer {
 public:
  std::string name() const override { return "pairs"; }
  std::int64_t vocab_size() const override { return 1 << 16; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> out;
    for (std::size_t i = 0; i < text.size(); i += 2) {
      const int second = i + 1 < text.size() ? text[i + 1] : 0;
      out.push_back(text[i] * 256 + second);
    }
    return out;
  }
  std::string decode(std::span<const std::int64_t>) const override { return {}; }
  std::optional<std::int64_t> byte_count(std::int64_t) const override { return {}; }
  std::string content() const override { return {}; }
  std::vector<std::int32_t> start() const override { return {9}; }
};

TEST(DocumentsTest, ATokenAcrossABoundaryBelongsToTheAnswer) {
  const TempFolder folder;
  folder.write("a.jsonl", "{\"prompt\": \"abc\", \"completion\": \"def\"}\n");
  const std::vector<std::filesystem::path> paths{folder.path()};
  const DocumentSet set = read_documents(read_text(paths), {.end = {0}}, Pairs());
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(set.tokens->size()));
  set.tokens->read(0, tokens);
  const auto pair = [](char a, char b) { return std::int64_t{a} * 256 + b; };
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{9, untrained(pair('a', 'b')), pair('c', 'd'),
                                               pair('e', 'f'), 0}));
}

}  // namespace
}  // namespace tracestep
