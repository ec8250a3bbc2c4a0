#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
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
  fs::create_directory(folder / ".tracestep-0123456789abcde.tmp");
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

fs::perms permissions_of(const fs::path& path) {
  return fs::status(path).permissions() & fs::perms::mask;
}

TEST(OutputFileTest, AFileKeepsItsPermissionsWhenItIsReplaced) {
  const TempFolder folder;
  for (const unsigned mode : {0600u, 0640u, 0604u, 0666u, 0755u}) {
    fs::permissions(folder.write("own", "{\"schema\":\"tracestep.a/1\"}"), fs::perms(mode));
    {
      OutputFile half(folder / "own");
      for (const auto& entry : fs::directory_iterator(folder.path())) {
        // Nobody reads meanwhile what the file keeps from them.
        EXPECT_EQ(permissions_of(entry) & ~fs::perms(mode), fs::perms::none) << entry.path();
      }
    }
    write_file(folder / "own", "{\"schema\":\"tracestep.b/1\"}");
    EXPECT_EQ(permissions_of(folder / "own"), fs::perms(mode));
    write_file(*Directory::open(folder.path()), "own", "{\"schema\":\"tracestep.c/1\"}");
    EXPECT_EQ(permissions_of(folder / "own"), fs::perms(mode));
  }
}

TEST(OutputFileTest, ANewFileHasThePermissionsThatTheUserGivesNewFiles) {
  const TempFolder folder;
  const mode_t before = ::umask(027);
  write_file(folder / "new", "text");
  ::umask(before);
  EXPECT_EQ(permissions_of(folder / "new"), fs::perms(0640));
}

TEST(OutputFileTest, WhatOthersWroteIsNotReplaced) {
  const TempFolder folder;
  folder.write("empty", "");
  check_writable(folder / "empty");
  for (const char* foreign :
       {"my notes\n", "{}", "{\"schema\":\"other/1\"}", "size,context\r\n1,2\r\n",
        "\"a\",\"b\"\r\n", "# tracestep\n", "<svg></svg>", "\x1f\x8b\x08", "\x80\x02}.",
        "{\"step\":3,\"epoch\":1}", "{\"schemaVersion\": 1,\n\"traceEvents\": []}"}) {
    const fs::path path = folder.write("foreign", foreign);
    const std::string message =
        message_of(ErrorCode::kOutput, [&] { check_writable(path, "trace"); });
    EXPECT_TRUE(contains(message, "[trace] " + path.string() + " would be replaced"));
    EXPECT_TRUE(contains(message, "option overwrite"));
    message_of(ErrorCode::kOutput, [&] { write_file(path, "text"); });
    fs::remove(folder / "link");
    fs::create_symlink("foreign", folder / "link");
    message_of(ErrorCode::kOutput, [&] { write_file(folder / "link", "text"); });
    EXPECT_EQ(content_of(path), foreign);
  }
  EXPECT_EQ(count_in(folder.path()), 3u);
}

// The switch needs a process of its own, as nothing takes it back.
TEST(OutputFileTest, WhatOthersWroteIsReplacedWhereTheUserSaysSo) {
  const TempFolder folder;
  folder.write("foreign", "my notes\n");
  const pid_t child = ::fork();
  if (child == 0) {
    allow_overwriting();
    write_file(folder / "foreign", "text");
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(content_of(folder / "foreign"), "text");
}

TEST(OutputFileTest, StreamsAreWrittenToAsTheyAre) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", folder / "null");
  const FileHandle reader(::open((folder / "fifo").c_str(), O_RDONLY | O_NONBLOCK));
  const FileHandle file(::open((folder / "file").c_str(), O_RDWR | O_CREAT, 0600));
  ASSERT_TRUE(file.write(std::as_bytes(std::span("first ", 6))) == 0);
  const std::string descriptor = fmt::format("/dev/fd/{}", file.get());
  for (const fs::path& path : {folder / "fifo", folder / "null", fs::path(descriptor)}) {
    EXPECT_TRUE(is_stream(path)) << path;
    check_writable(path);
    write_file(path, "text");
  }
  char text[5] = {};
  EXPECT_EQ(::read(reader.get(), text, sizeof text), 4);
  EXPECT_STREQ(text, "text");
  EXPECT_EQ(content_of(folder / "file"), "first text");
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
  EXPECT_TRUE(fs::is_symlink(folder / "null"));
  EXPECT_EQ(count_in(folder.path()), 3u);
  EXPECT_TRUE(is_stream("-"));
  EXPECT_FALSE(is_stream("./-"));
  EXPECT_TRUE(contains(message_of(ErrorCode::kOutput, [] { check_writable("/dev/fd/999"); }),
                       "Bad file descriptor"));
  EXPECT_TRUE(contains(message_of(ErrorCode::kOutput, [] { write_file("/dev/full", "text"); }),
                       "/dev/full cannot be written: No space"));
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
