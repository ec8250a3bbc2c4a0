// A folder that is made for an output which does not come goes again, and nothing else.
#include "base/made_folders.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

TEST(MadeFoldersTest, WhatStaysEmptyGoesAgain) {
  const TempFolder folder;
  for (const char* path : {"a/b/c", "a/b/c/", "a/./b"}) {
    {
      const MadeFolders made(folder / path);
      EXPECT_FALSE(made.error()) << path;
      EXPECT_TRUE(fs::is_directory(folder / path)) << path;
    }
    EXPECT_FALSE(fs::exists(folder / "a")) << path;
  }
}

TEST(MadeFoldersTest, WhatHoldsAFileOrWasThereBeforeStays) {
  const TempFolder folder;
  fs::create_directory(folder / "there");
  {
    const MadeFolders made(folder / "there/new/empty");
    folder.write("there/new/file", "");
  }
  EXPECT_TRUE(fs::exists(folder / "there/new/file"));
  EXPECT_FALSE(fs::exists(folder / "there/new/empty"));
  { const MadeFolders made(folder / "there"); }
  fs::create_directory(folder / "empty");
  { const MadeFolders made(folder / "empty"); }
  EXPECT_TRUE(fs::exists(folder / "empty"));
}

TEST(MadeFoldersTest, WhatCannotBeMadeIsAnErrorAndNothingIsLeft) {
  const TempFolder folder;
  folder.write("file", "");
  { EXPECT_TRUE(MadeFolders(folder / "file/below").error()); }
  fs::create_symlink("nowhere/at/all", folder / "link");
  { EXPECT_TRUE(MadeFolders(folder / "link").error()); }
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_FALSE(MadeFolders("").any());
}

}  // namespace
}  // namespace tracestep
