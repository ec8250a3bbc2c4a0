// Rules of characters in models of SentencePiece: here one that makes a text out of each "a".
#include "tokens/piece_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/temp_folder.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

std::string field(char tag, std::string_view bytes) {
  std::string size;
  for (std::size_t left = bytes.size(); size.empty() || left > 0; left >>= 7u) {
    size += static_cast<char>((left & 0x7fu) | (left > 0x7f ? 0x80u : 0u));
  }
  return tag + size + std::string(bytes);
}

// A double array of two blocks: the root leads to the unit of "a", and that to its text.
std::string rules_for(std::string_view text, std::uint32_t place = 0, std::uint32_t next = 256) {
  std::array<std::uint32_t, 512> units{};
  units[0] = next << 10u;
  units[256 + 'a'] = 1u << 10u | 1u << 8u | 'a';
  units[256 + ('a' ^ 1)] = 1u << 31u | place;
  std::string out;
  const auto append = [&out](std::uint32_t number) {
    for (unsigned shift = 0; shift < 32; shift += 8) out += static_cast<char>(number >> shift);
  };
  append(units.size() * 4);
  for (const std::uint32_t unit : units) append(unit);
  return out + std::string(text) + '\0';
}

std::string model_with(std::string_view rules, char part = 3) {
  static const std::string model = train_bpe("banana band and a tin of jam", 300)->content();
  return model + field(static_cast<char>(part * 8 + 2), field(2 * 8 + 2, rules));
}

std::string refusal_of(const std::string& model) {
  return message_of(ErrorCode::kInput, [&] { parse_tokenizer(model, "T.model"); });
}

TEST(PieceRulesTest, ARuleOfSomeBytesIsFollowed) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  const auto tokenizer = parse_tokenizer(model_with(rules_for("ti")), "T.model");
  EXPECT_EQ(tokenizer->encode("nab"), tokenizer->encode("ntib"));
  EXPECT_EQ(tokenizer->encode("bu"), parse_tokenizer(model_with(""), "T.model")->encode("bu"));
}

TEST(PieceRulesTest, ARuleThatMakesALongTextOfACharacterIsRefused) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  EXPECT_NO_THROW(parse_tokenizer(model_with(rules_for(std::string(64, 'b'))), "T.model"));
  const std::string longer = rules_for(std::string(1'000'000, 'b'));
  for (const char part : {'\3', '\5'}) {
    EXPECT_THAT(refusal_of(model_with(longer, part)),
                HasSubstr("T.model: a rule makes 1000000 bytes of a character; at most 64"));
  }
}

TEST(PieceRulesTest, RulesThatLeadBeyondThemselvesAreRefused) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  const std::string whole = rules_for("b");
  for (const std::string& rules :
       {rules_for("b", 2), rules_for("b", 0x7fffffff), rules_for("b", 0, 512),
        rules_for("b", 0, 1u << 20u), whole.substr(0, whole.size() - 1), whole.substr(0, 2000),
        whole.substr(0, 3), std::string(4, '\0') + whole.substr(4)}) {
    EXPECT_THAT(refusal_of(model_with(rules)), HasSubstr("rules for characters are damaged"));
  }
}

TEST(PieceRulesTest, AMessageThatIsCutIsLeftToTheLibrary) {
  const std::string message = field(3 * 8 + 2, field(2 * 8 + 2, rules_for("b")));
  for (std::size_t size = 0; size < message.size(); size += 7) {
    EXPECT_NO_THROW(check_piece_rules(message.substr(0, size), "T.model")) << size;
  }
}

}  // namespace
}  // namespace tracestep
