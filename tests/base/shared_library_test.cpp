#include "base/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

fs::path path_of(void* library) {
  link_map* map = nullptr;
  return ::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? fs::path(map->l_name) : fs::path();
}

// The mathematics library under another name: it has no state, so that two of it may be open in one
// process.
void plant_library(const fs::path& file) {
  void* const open = ::dlopen("libm.so.6", RTLD_NOW);
  ASSERT_NE(open, nullptr);
  fs::create_directories(file.parent_path());
  fs::copy_file(path_of(open), file);
  ::dlclose(open);
}

TEST(SharedLibraryTest, IsFoundWhereTheLoaderLooks) {
  EXPECT_NE(open_shared_library("libc.so.6"), nullptr);
}

TEST(SharedLibraryTest, IsNotFoundWhereThereIsNone) {
  const TempFolder folder;
  const std::vector<fs::path> folders = {folder.path(), folder / "missing"};
  EXPECT_EQ(open_shared_library("libtracestep_no_such.so.1", folders), nullptr);
}

TEST(SharedLibraryTest, IsFoundInTheFirstFolderThatHasIt) {
  const TempFolder folder;
  plant_library(folder / "b/libtracestep_planted.so.1");
  plant_library(folder / "c/libtracestep_planted.so.1");
  const std::vector<fs::path> folders = {folder / "a", folder / "b", folder / "c"};
  void* const library = open_shared_library("libtracestep_planted.so.1", folders);
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(path_of(library), folder / "b/libtracestep_planted.so.1");
}

TEST(SharedLibraryTest, FoldersOfPythonPackagesAreThoseWithLibraries) {
  const TempFolder folder;
  for (const char* made : {"lib/python3.11/site-packages/nvidia/cu13/lib",
                           "lib/python3.11/site-packages/nvidia/nccl/lib",
                           "lib/python3.11/site-packages/nvidia/headers/include",
                           "lib/python3/dist-packages/nvidia/cu13/lib", "lib/tracestep"}) {
    fs::create_directories(folder / made);
  }
  EXPECT_THAT(python_library_folders(folder.path()),
              ::testing::ElementsAre(folder / "lib/python3/dist-packages/nvidia/cu13/lib",
                                     folder / "lib/python3.11/site-packages/nvidia/cu13/lib",
                                     folder / "lib/python3.11/site-packages/nvidia/nccl/lib"));
  EXPECT_THAT(python_library_folders(folder / "missing"), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tracestep
