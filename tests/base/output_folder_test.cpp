// Folders that appear whole or not at all, and what is left of those that do not.
#include "base/output_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/output_file.h"
#include "base/temporaries.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> names_in(const fs::path& folder) {
  return Directory::open(folder)->names();
}

void make(const fs::path& path, const std::string& content) {
  OutputFolder folder(path, "export");
  write_file(folder.folder(), "file", content);
  folder.commit();
}

std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutput);
    return error.what();
  }
  return {};
}

// A process that is killed while it writes a folder, as kill -9 does.
void write_and_die(const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    const OutputFolder folder(path, "export");
    write_file(folder.folder(), "half", "of it");
    ::kill(::getpid(), SIGKILL);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
}

TEST(OutputFolderTest, ItAppearsWithAllItsFilesOrLeavesNothing) {
  const TempFolder temp;
  {
    const OutputFolder folder(temp / "a", "export");
    write_file(folder.folder(), "file", "x");
    EXPECT_FALSE(fs::exists(temp / "a"));
  }
  EXPECT_TRUE(names_in(temp.path()).empty());
  make(temp / "deep/down/a", "x");
  EXPECT_THAT(names_in(temp / "deep/down"), ElementsAre("a"));
  EXPECT_EQ(content_of(temp / "deep/down/a/file"), "x");
}

TEST(OutputFolderTest, ThatOfAnotherProcessStaysWhoeverIsQuicker) {
  const TempFolder temp;
  OutputFolder slow(temp / "a", "export");
  write_file(slow.folder(), "file", "slow");
  make(temp / "a", "quick");
  EXPECT_EQ(refusal_of([&] { slow.commit(); }),
            fmt::format("[export] {} is there already; give a new folder, or an empty one",
                        (temp / "a").string()));
  EXPECT_EQ(content_of(temp / "a/file"), "quick");
  EXPECT_THAT(refusal_of([&] { make(temp / "a", "late"); }), HasSubstr("is there already"));
}

TEST(OutputFolderTest, WhatKilledProcessesLeftGoesAndNothingElse) {
  const TempFolder temp;
  temp.write(".tmp-a/mine", "keep");
  temp.write(".tracestep-0123/mine", "keep");
  write_and_die(temp / "a");
  write_and_die(temp / "b");
  EXPECT_EQ(names_in(temp.path()).size(), 3u) << "b swept what a left";
  const OutputFolder under_way(temp / "c", "export");
  write_file(under_way.folder(), "file", "x");
  make(temp / "d", "x");
  EXPECT_THAT(names_in(temp.path()),
              UnorderedElementsAre(".tmp-a", ".tracestep-0123", "d",
                                   under_way.folder().path().filename().string()));
  EXPECT_EQ(content_of(temp / ".tmp-a/mine"), "keep");
  EXPECT_EQ(content_of(under_way.folder().path() / "file"), "x");
}

TEST(OutputFolderTest, AFileOfTheSameFolderSweepsAsWell) {
  const TempFolder temp;
  write_and_die(temp / "a");
  write_file(temp / "file", "x");
  EXPECT_THAT(names_in(temp.path()), ElementsAre("file"));
}

TEST(OutputFolderTest, ManyAtOnceLeaveOneWholeFolder) {
  const TempFolder temp;
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        make(temp / "a", std::to_string(i));
      } catch (const Error& error) {
        ::_exit(error.message().ends_with("is there already") ? 5 : 1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  int written = 0;
  for (const pid_t child : children) {
    int state = 0;
    ::waitpid(child, &state, 0);
    EXPECT_TRUE(WIFEXITED(state) && (WEXITSTATUS(state) == 0 || WEXITSTATUS(state) == 5)) << state;
    written += WEXITSTATUS(state) == 0 ? 1 : 0;
  }
  EXPECT_EQ(written, 1);
  EXPECT_THAT(names_in(temp.path()), ElementsAre("a"));
}

TEST(OutputFolderTest, ALinkToAnEmptyFolderStaysALink) {
  const TempFolder temp;
  fs::create_directory(temp / "real");
  fs::create_directory_symlink(temp / "real", temp / "link");
  make(temp / "link", "x");
  EXPECT_TRUE(fs::is_symlink(temp / "link"));
  EXPECT_EQ(content_of(temp / "real/file"), "x");
  temp.write("file", "x");
  EXPECT_THAT(refusal_of([&] { make(temp / "file", "y"); }), HasSubstr("is there already"));
}

}  // namespace
}  // namespace tracestep
