#include "codegen/kernel_cache.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"

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

fs::perms permissions_of(const fs::path& path) {
  return fs::symlink_status(path).permissions() & fs::perms::mask;
}

void write(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), std::ssize(text));
}

TEST_F(KernelCacheTest, FolderAndFilesAreForThisUserAlone) {
  const mode_t before = umask(0);
  const KernelCache cache(folder_ / "below");
  EXPECT_TRUE(cache.add("text", kCode));
  umask(before);
  for (const fs::path& folder : {folder_, folder_ / "below"}) {
    EXPECT_EQ(permissions_of(folder), fs::perms(0700)) << folder;
  }
  EXPECT_EQ(permissions_of(*fs::directory_iterator(folder_ / "below")), fs::perms(0600));
  EXPECT_EQ(cache.find("text"), kCode);
}

// The device would run code that others may have written.
TEST_F(KernelCacheTest, WhatOthersMayWriteIsNotRead) {
  const KernelCache cache(folder_);
  ASSERT_TRUE(cache.add("text", kCode));
  const fs::path file = only_file();
  for (const fs::perms open : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(file, open, fs::perm_options::add);
    std::string problem;
    EXPECT_EQ(cache.find("text", &problem), std::nullopt);
    EXPECT_NE(problem.find(file.string() + " is not used"), std::string::npos) << problem;
    EXPECT_TRUE(cache.add("text", kCode));  // in its place
    EXPECT_EQ(permissions_of(file), fs::perms(0600));
    EXPECT_EQ(cache.find("text"), kCode);
    fs::permissions(folder_, open, fs::perm_options::add);
    problem.clear();
    EXPECT_EQ(cache.find("text", &problem), std::nullopt);
    EXPECT_NE(problem.find("another user owns it or may write to it"), std::string::npos);
    EXPECT_FALSE(cache.add("text", "newer"));
    fs::permissions(folder_, fs::perms(0700));
    EXPECT_EQ(cache.find("text"), kCode);
  }
}

TEST_F(KernelCacheTest, WhatAnotherUserOwnsIsNotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const KernelCache cache(folder_);
  ASSERT_TRUE(cache.add("text", kCode));
  ASSERT_EQ(chown(only_file().c_str(), 12345, 12345), 0);
  EXPECT_EQ(cache.find("text"), std::nullopt);
  EXPECT_TRUE(cache.add("text", kCode));
  EXPECT_EQ(cache.find("text"), kCode);
  ASSERT_EQ(chown(folder_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(cache.find("text"), std::nullopt);
  EXPECT_FALSE(cache.add("text", kCode));
}

TEST_F(KernelCacheTest, LinksInTheFolderAreNotFollowed) {
  const KernelCache cache(folder_);
  ASSERT_TRUE(cache.add("text", kCode));
  const fs::path file = only_file(), victim = folder_ / "victim";
  fs::rename(file, victim);
  const auto size = fs::file_size(victim);
  fs::create_symlink(victim, file);
  EXPECT_EQ(cache.find("text"), std::nullopt);
  // Earlier versions named a file for writing so, by the process.
  fs::create_symlink(victim, file.string() + fmt::format(".{}.part", getpid()));
  EXPECT_TRUE(cache.add("text", kCode + "newer"));
  EXPECT_EQ(fs::file_size(victim), size);
  EXPECT_FALSE(fs::is_symlink(file));
  EXPECT_EQ(cache.find("text"), kCode + "newer");
}

TEST_F(KernelCacheTest, FilesOfOtherNamesStay) {
  const KernelCache cache(folder_, 100);
  ASSERT_TRUE(cache.add("first", kCode));
  const std::vector<std::string> names{"debian-12.iso.part",
                                       "thesis.kernel",
                                       std::string(31, 'a') + ".kernel",
                                       std::string(33, 'a') + ".kernel",
                                       std::string(31, 'a') + "G.kernel",
                                       std::string(32, 'a') + ".kernel.123.part"};
  for (const std::string& name : names) write(folder_ / name, std::string(1000, 'x'));
  EXPECT_TRUE(cache.add("second", std::string(1000, 'y')));
  for (const std::string& name : names) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), std::ssize(names));
}

// Another disk that is full behaves like a file that may not grow.
TEST_F(KernelCacheTest, WhatDoesNotFitOnTheDiskLeavesNothingBehind) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const bool is_kept = KernelCache(folder_).add("text", std::string(100'000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(is_kept);
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_TRUE(KernelCache(folder_).add("text", kCode));
}

TEST_F(KernelCacheTest, WhatWasUsedLongestAgoGoesWhenThereIsTooMuch) {
  const std::string kernel(1000, 'x');
  const KernelCache cache(folder_, 3500);
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(cache.add(key, kernel));
  // "a" is read last, and all of it was long ago.
  const auto then = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const auto& entry : fs::directory_iterator(folder_)) fs::last_write_time(entry, then);
  ASSERT_TRUE(cache.find("a").has_value());
  ASSERT_TRUE(cache.add("d", kernel));
  EXPECT_TRUE(cache.find("a").has_value());
  EXPECT_TRUE(cache.find("d").has_value());
  EXPECT_EQ(cache.find("b").has_value() + cache.find("c").has_value(), 1);
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) bytes += entry.file_size();
  EXPECT_LE(bytes, 3500u);
}

// Four processes write and read the same few kernels; nobody ever reads something else.
TEST_F(KernelCacheTest, ProcessesThatFillItAtOnceAgree) {
  const auto content = [](int key) { return std::string(20'000, static_cast<char>('a' + key)); };
  const auto work = [&] {
    const KernelCache cache(folder_, 70'000);
    for (int i = 0; i < 200; ++i) {
      const int key = i % 5;
      const auto found = cache.find(fmt::format("key {}", key));
      if (found && *found != content(key)) return 1;
      cache.add(fmt::format("key {}", key), content(key));
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(work());
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(KernelCacheTest, ACompilerIsAskedOnceAndItsFailureIsPassedOn) {
  KernelBinaries binaries{KernelCache(folder_)};
  int calls = 0;
  const auto compile = [&] { return ++calls, kCode; };
  const auto fail = []() -> std::string {
    throw Error(ErrorCode::kDevice, "NVRTC", "internal error");
  };
  EXPECT_THROW(binaries.get("text", fail), Error);
  EXPECT_EQ(binaries.get("text", compile), kCode);  // nothing of the failure was kept
  EXPECT_EQ(binaries.get("text", fail), kCode);
  EXPECT_EQ(calls, 1);
}

// Each of the first three waits until all three are being compiled.
TEST_F(KernelCacheTest, SeveralAreCompiledAtATime) {
  KernelBinaries binaries{KernelCache(folder_)};
  const std::vector<std::string> keys{"a", "b", "c", "d", "e"};
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0;
  const auto compile = [&](std::size_t i) {
    std::unique_lock lock(mutex);
    ++started;
    changed.notify_all();
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return started >= 3; }));
    return "code " + keys[i];
  };
  const std::vector<std::string> made = binaries.get_all(keys, compile, 3);
  EXPECT_EQ(made, (std::vector<std::string>{"code a", "code b", "code c", "code d", "code e"}));
  EXPECT_EQ(started, 5);
  EXPECT_EQ(binaries.get_all(keys, compile, 3), made);
  EXPECT_EQ(started, 5);
}

TEST_F(KernelCacheTest, OfSeveralTheFirstFailureIsPassedOnAndTheRestIsKept) {
  KernelBinaries binaries{KernelCache(folder_)};
  const std::vector<std::string> keys{"a", "b", "c"};
  const auto compile = [&](std::size_t i) -> std::string {
    if (i == 1) throw Error(ErrorCode::kDevice, "NVRTC", "internal error");
    return "code " + keys[i];
  };
  EXPECT_THROW(binaries.get_all(keys, compile, 1), Error);
  EXPECT_EQ(KernelCache(folder_).find("a"), "code a");
  EXPECT_EQ(KernelCache(folder_).find("b"), std::nullopt);
}

TEST_F(KernelCacheTest, WithoutAUsableFolderEachKernelIsCompiledAndOneWarningSaysSo) {
  std::ofstream(folder_.string()) << "a file";
  KernelBinaries binaries{KernelCache(folder_)};
  int calls = 0;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(binaries.get("text", [&] { return ++calls, kCode; }), kCode);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(calls, 3);
  const std::size_t first = log.find("cannot be kept in " + folder_.string());
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("cannot be kept", first + 1), std::string::npos) << log;
}

TEST_F(KernelCacheTest, AnUnsafeFolderIsSaidOnceAndKernelsAreCompiled) {
  ASSERT_TRUE(KernelCache(folder_).add("text", "planted"));
  fs::permissions(folder_, fs::perms(0777));
  KernelBinaries binaries{KernelCache(folder_)};
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(binaries.get("text", [] { return kCode; }), kCode);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::size_t first = log.find("another user owns it or may write to it");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("another user", first + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace tracestep
