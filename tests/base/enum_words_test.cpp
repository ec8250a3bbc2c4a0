#include "base/enum_words.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

enum class Fruit { kApple, kPear, k3Plums };
TRACESTEP_WORDS(Fruit, "apple", "pear", "plums");

TEST(EnumWords, NamesAndFindsEachEnumerator) {
  ASSERT_EQ(kAll<Fruit>.size(), 3);
  for (const Fruit fruit : kAll<Fruit>) EXPECT_EQ(named<Fruit>(name_of(fruit)), fruit);
  EXPECT_EQ(name_of(Fruit::k3Plums), "plums");
  EXPECT_EQ(named<Fruit>("cherry"), std::nullopt);
  EXPECT_EQ(name_of(static_cast<Fruit>(3)), "?");
}

TEST(EnumWords, KnowWhetherEveryEnumeratorHasAWord) {
  EXPECT_TRUE((has_enumerators<Fruit, 3>));
  EXPECT_FALSE((has_enumerators<Fruit, 2>));
  EXPECT_FALSE((has_enumerators<Fruit, 4>));
}

}  // namespace
}  // namespace tracestep
