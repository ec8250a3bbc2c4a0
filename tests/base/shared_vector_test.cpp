// Copies share their items until one of them changes.
#include "base/shared_vector.h"

#include <gtest/gtest.h>

#include <string>

namespace tracestep {
namespace {

TEST(SharedVectorTest, ACopyChangesAlone) {
  SharedVector<std::string> a{"one", "two"};
  SharedVector<std::string> b = a;
  EXPECT_EQ(&a.get(), &b.get());
  b.edit().push_back("three");
  EXPECT_EQ(a, (SharedVector<std::string>{"one", "two"}));
  EXPECT_EQ(b, (SharedVector<std::string>{"one", "two", "three"}));
  EXPECT_NE(a, b);
}

TEST(SharedVectorTest, TheOnlyOwnerChangesInPlace) {
  SharedVector<std::string> a{"one"};
  { const SharedVector<std::string> shared_for_a_while = a; }
  const std::vector<std::string>* before = &a.get();
  a.edit()[0] = "two";
  EXPECT_EQ(&a.get(), before);
  EXPECT_EQ(a.front(), "two");
}

TEST(SharedVectorTest, NothingIsAListToo) {
  SharedVector<int> a;
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(a, SharedVector<int>(std::vector<int>{}));
  a.edit().push_back(7);
  EXPECT_EQ(a[0], 7);
  EXPECT_EQ(a.size(), 1U);
}

}  // namespace
}  // namespace tracestep
