#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "codegen/kernel_cache.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

class KernelCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("tracestep_cache_{}", test->name());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path only_file() const { return *fs::directory_iterator(folder_); }

  fs::path folder_;
};

const std::string kCode(
    "\x7f"
    "ELF\0 machine\ncode",
    18);

TEST_F(KernelCacheTest, WhatWasAddedIsFoundByAnother) {
  EXPECT_TRUE(KernelCache(folder_).add("text a", kCode));
  const KernelCache other(folder_);
  EXPECT_EQ(other.find("text a"), kCode);
  EXPECT_EQ(other.find("text b"), std::nullopt);
  EXPECT_TRUE(other.add("text a", "newer"));
  EXPECT_EQ(other.find("text a"), "newer");
}

TEST_F(KernelCacheTest, DamagedFilesCountAsAbsent) {
  const KernelCache cache(folder_);
  ASSERT_TRUE(cache.add("text", kCode));
  const fs::path file = only_file();
  const auto size = fs::file_size(file);
  for (std::uintmax_t at = 0; at < size; ++at) {
    fs::resize_file(file, at);
    EXPECT_EQ(cache.find("text"), std::nullopt) << "cut at " << at;
    ASSERT_TRUE(cache.add("text", kCode));
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(at));
    const int old = bytes.get();
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(static_cast<char>(old ^ 1));
    bytes.close();
    EXPECT_EQ(cache.find("text"), std::nullopt) << "changed at " << at;
    ASSERT_TRUE(cache.add("text", kCode));
  }
}

TEST_F(KernelCacheTest, AFileOfAnotherKeyIsNotTaken) {
  const KernelCache cache(folder_);
  ASSERT_TRUE(cache.add("text a", kCode));
  const fs::path a = only_file();
  const fs::path kept = a.string() + ".kept";
  fs::rename(a, kept);
  ASSERT_TRUE(cache.add("text b", kCode));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path() != kept)
      fs::copy_file(kept, entry.path(), fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(cache.find("text b"), std::nullopt);
}

TEST_F(KernelCacheTest, AFolderThatCannotBeUsedIsNoError) {
  std::ofstream(folder_.string()) << "a file";
  const KernelCache cache(folder_);
  EXPECT_FALSE(cache.add("text", kCode));
  EXPECT_EQ(cache.find("text"), std::nullopt);
  const KernelCache off{fs::path()};
  EXPECT_FALSE(off.add("text", kCode));
  EXPECT_EQ(off.find("text"), std::nullopt);
}

}  // namespace
}  // namespace tracestep
