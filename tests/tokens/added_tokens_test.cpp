// Added tokens within white space, and in linear time. What they are beside the library
// `tokenizers` is shown by tools/soak/random_tokenizers.py.
#include <gtest/gtest.h>

#include "tokens/added_tokens.h"

namespace tracestep {
namespace {

constexpr AddedToken kSpace{.id = 1, .content = " ", .pattern = " "};

// The texts and the numbers of the tokens, in turn.
std::string split(std::vector<AddedToken> tokens, std::string_view text) {
  std::string out;
  AddedTokens(std::move(tokens), "T.json")
      .split(
          text, [&](std::string_view part) { out += "[" + std::string(part) + "]"; },
          [&](std::int32_t id) { out += std::to_string(id); });
  return out;
}

AddedToken space_that_strips() {
  AddedToken out = kSpace;
  out.lstrip = out.rstrip = true;
  return out;
}

TEST(AddedTokensTest, WhiteSpaceThatATokenHasTakenHasNoMoreOfIt) {
  EXPECT_EQ(split({space_that_strips()}, "x         y z"), "[x]1[y]1[z]");
  AddedToken first{.id = 2, .content = "c", .pattern = "c", .rstrip = true};
  EXPECT_EQ(split({first, space_that_strips()}, "xc   y z"), "[x]2[y]1[z]");
}

// As the library does: only what is left of a match is no token where nothing is.
TEST(AddedTokensTest, ATokenWithoutStrippingIsFoundInTakenSpaceToo) {
  AddedToken right = kSpace, first{.id = 2, .content = "c", .pattern = "c", .rstrip = true};
  right.rstrip = true;
  EXPECT_EQ(split({right}, "x   y z"), "[x]111[y]1[z]");
  EXPECT_EQ(split({first, kSpace}, "xc   y"), "[x]2111[y]");
  const AddedToken two{.id = 3, .content = "  ", .pattern = "  "};
  EXPECT_EQ(split({first, two}, "xc   y"), "[x]23[ y]");
}

TEST(AddedTokensTest, ATokenWhoseEndWasTakenIsPassedOver) {
  AddedToken first{.id = 2, .content = "c", .pattern = "c", .rstrip = true}, left = kSpace;
  left.lstrip = true;
  EXPECT_EQ(split({first, left}, "xc   y z"), "[x]2[y]1[z]");
}

TEST(AddedTokensTest, AMillionBlanksTakeTimeOfTheirLengthOnly) {
  const std::string blanks(1'000'000, ' ');
  AddedToken left = kSpace, right = kSpace;
  left.lstrip = right.rstrip = true;
  EXPECT_EQ(split({space_that_strips()}, "a" + blanks + "b"), "[a]1[b]");
  EXPECT_EQ(split({left}, blanks).size(), blanks.size());
  EXPECT_EQ(split({right}, blanks).size(), blanks.size());
  const AddedToken no_space{
      .id = 4, .content = "a", .pattern = "a", .lstrip = true, .rstrip = true};
  EXPECT_EQ(split({no_space}, blanks + "a" + blanks), "4");
}

}  // namespace
}  // namespace tracestep
