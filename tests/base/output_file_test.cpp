#include "base/output_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

std::size_t count_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

// A process that has opened `path` for output and waits, with half of it written.
class HalfWay {
 public:
  explicit HalfWay(const fs::path& path) {
    int ready[2], go[2];
    if (::pipe(ready) != 0 || ::pipe(go) != 0) throw std::runtime_error("pipe");
    child_ = ::fork();
    if (child_ == 0) write_half(path, ready[1], go[0]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    go_ = go[1];
    for (int fd : {ready[0], ready[1], go[0]}) ::close(fd);
  }
  ~HalfWay() {
    ::close(go_);
    kill();
  }

  int finish() {
    EXPECT_EQ(::write(go_, "x", 1), 1);
    return wait();
  }
  void kill() {
    if (child_ > 0) ::kill(child_, SIGKILL);
    wait();
  }

 private:
  [[noreturn]] static void write_half(const fs::path& path, int ready, int go) {
    try {
      OutputFile file(path);
      file.write("half");
      char byte = 0;
      if (::write(ready, "x", 1) != 1 || ::read(go, &byte, 1) != 1) ::_exit(2);
      file.write(" and half");
      file.commit();
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int wait() {
    int status = 0;
    if (child_ > 0) ::waitpid(std::exchange(child_, 0), &status, 0);
    return status;
  }

  pid_t child_;
  int go_;
};

TEST(OutputFileTest, LeftoversOfAProcessOfTheSameNumberDoNotBlock) {
  const TempFolder folder;
  for (int i = 0; i < 500; ++i) {
    folder.write(fmt::format(".tracestep-{}-{}.tmp", ::getpid(), i), "of an earlier container");
  }
  write_file(folder / "out", "text");
  EXPECT_EQ(content_of(folder / "out"), "text");
  EXPECT_EQ(count_in(folder.path()), 501u);
}

TEST(OutputFileTest, WhatAKilledProcessLeftIsRemovedByTheNextOutput) {
  const TempFolder folder;
  HalfWay(folder / "other").kill();
  ASSERT_EQ(count_in(folder.path()), 1u);
  write_file(folder / "out", "text");
  EXPECT_EQ(count_in(folder.path()), 1u);
  EXPECT_EQ(content_of(folder / "out"), "text");
}

TEST(OutputFileTest, WhatALivingProcessWritesIsLeftAlone) {
  const TempFolder folder;
  HalfWay other(folder / "other");
  for (int i = 0; i < 3; ++i) check_writable(folder / "out");
  write_file(folder / "out", "text");
  EXPECT_EQ(other.finish(), 0);
  EXPECT_EQ(content_of(folder / "other"), "half and half");
  EXPECT_EQ(count_in(folder.path()), 2u);
}

TEST(OutputFileTest, WhatOnlyLooksLikeOneOfOursIsLeftAlone) {
  const TempFolder folder;
  folder.write("precious", "kept");
  for (const char* name : {".tracestep-.tmp", ".tracestep-0123.tmp", ".tracestep-notes.tmp",
                           ".tracestep-0123456789ABCDEF.tmp", "tracestep-0123456789abcdef.tmp",
                           ".tracestep-0123456789abcdef0.tmp", ".tracestep-.tm"}) {
    folder.write(name, "kept");
  }
  fs::create_symlink("precious", folder / ".tracestep-0123456789abcdef.tmp");
  fs::create_directory(folder / ".tracestep-0123456789abcde0.tmp");
  check_writable(folder / "out");
  EXPECT_EQ(count_in(folder.path()), 10u);
  EXPECT_EQ(content_of(folder / "precious"), "kept");
}

TEST(OutputFileTest, ALinkThatAPersonNamesIsFollowedWhereverItLeads) {
  const TempFolder folder;
  fs::create_directory(folder / "there");
  fs::create_symlink("there/second", folder / "first");
  fs::create_symlink("../not_yet", folder / "there/second");
  write_file(folder / "first", "text");
  EXPECT_TRUE(fs::is_symlink(folder / "first"));
  EXPECT_TRUE(fs::is_symlink(folder / "there/second"));
  EXPECT_EQ(content_of(folder / "not_yet"), "text");
  fs::create_symlink("round", folder / "round");
  message_of(ErrorCode::kOutput, [&] { write_file(folder / "round/x", "text"); });
}

TEST(OutputFileTest, ALinkAmongTheMembersOfAFolderIsReplaced) {
  const TempFolder folder;
  folder.write("victim", "kept");
  fs::create_symlink("victim", folder / "latest");
  write_file(*Directory::open(folder.path()), "latest", "text");
  EXPECT_FALSE(fs::is_symlink(folder / "latest"));
  EXPECT_EQ(content_of(folder / "latest"), "text");
  EXPECT_EQ(content_of(folder / "victim"), "kept");
}

}  // namespace
}  // namespace tracestep
