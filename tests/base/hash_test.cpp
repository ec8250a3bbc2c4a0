#include "base/hash.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tracestep {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(HashTest, ItIsXxh3) {
  EXPECT_EQ(hash_text({}), "2d06800538d394c2");  // the value of the reference for no bytes
}

TEST(HashTest, WhereTheBytesWereCutDoesNotMatter) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7);
  Hash parts;
  std::string_view left = text;
  for (std::size_t size = 0; !left.empty(); ++size) {
    parts.add(bytes_of(left.substr(0, size)));
    left.remove_prefix(std::min(size, left.size()));
  }
  EXPECT_EQ(parts.text(), hash_text(bytes_of(text)));
  text[4000] ^= 1;
  EXPECT_NE(parts.text(), hash_text(bytes_of(text)));
}

}  // namespace
}  // namespace tracestep
