#include "base/directory.h"

#include <fcntl.h>

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public testing::Test {
 protected:
  DirectoryTest() {
    folder_.write("outside/kept", "text");
    folder_.write("inside/a/b/file", "text");
    fs::create_directory_symlink("../outside", folder_ / "inside/link");
    fs::create_directory_symlink("../../outside", folder_ / "inside/a/link");
  }

  TempFolder folder_;
};

TEST_F(DirectoryTest, RemovingAFolderLeavesWhatItsLinksPointTo) {
  const Directory parent = *Directory::open(folder_.path());
  parent.remove("inside");
  parent.remove("missing");
  EXPECT_FALSE(parent.has("inside"));
  EXPECT_EQ(content_of(folder_ / "outside/kept"), "text");
}

TEST_F(DirectoryTest, RemovingALinkLeavesWhatItPointsTo) {
  const Directory inside = *Directory::open(folder_ / "inside");
  EXPECT_EQ(inside.kind_of("link"), Directory::Kind::kLink);
  inside.remove("link");
  EXPECT_FALSE(inside.has("link"));
  EXPECT_EQ(content_of(folder_ / "outside/kept"), "text");
}

TEST_F(DirectoryTest, NothingIsOpenedThroughALink) {
  const Directory inside = *Directory::open(folder_ / "inside", ErrorCode::kInput);
  message_of(ErrorCode::kInput, [&] { (void)inside.open_folder("link"); });
  fs::create_symlink("../outside/kept", folder_ / "inside/file");
  EXPECT_FALSE(inside.open_file("file", O_RDONLY).is_open());
  EXPECT_FALSE(inside.open_file("file", O_WRONLY | O_CREAT, 0666).is_open());
}

TEST_F(DirectoryTest, APathThatAPersonNamesMayBeALink) {
  const auto folder = Directory::open(folder_ / "inside/link");
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->names(), std::vector<std::string>{"kept"});
  EXPECT_FALSE(Directory::open(folder_ / "missing"));
}

}  // namespace
}  // namespace tracestep
