#include "base/locked_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/output_file.h"

namespace tracestep {
namespace {

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Writes the whole text to the disk; returns 0, or errno if that failed.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  // EINVAL: a file system that has nothing to flush.
  return ::fdatasync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

// Tries to lock the file for as long as `patience`. False: another process still has the lock then.
// Any other failure returns true, because such a file system has no locks.
bool is_locked_within(int fd, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kPause(10);
  for (;; patience -= kPause) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
    if (patience <= kPause) return false;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

LockedFile::LockedFile(std::filesystem::path path, About where, std::chrono::milliseconds patience)
    : path_(std::move(path)), where_(std::move(where)) {
  struct stat named {};
  // A dangling link existed before and must not be removed.
  is_ours_ = ::lstat(path_.c_str(), &named) != 0 && errno == ENOENT;
  while (!lock(patience)) {
  }
}

LockedFile::~LockedFile() {
  if (is_ours_) ::unlink(path_.c_str());
}

LockedFile::Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

// Opens the file and locks it; throws if another process holds the lock beyond `patience`. False if
// the file lost its name before it was locked: the process that held the lock has replaced it.
bool LockedFile::lock(std::chrono::milliseconds patience) {
  // O_NONBLOCK: it may be a FIFO.
  file_ = Descriptor(
      ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  if (file_.get() < 0 && errno == EISDIR) fail_input(where_, "{} is a directory", path_.string());
  if (file_.get() < 0) fail(errno);
  struct stat opened {
  }, named{};
  if (::fstat(file_.get(), &opened) != 0) fail(errno);
  if (!S_ISREG(opened.st_mode)) fail_input(where_, "{} is not a regular file", path_.string());
  if (!is_locked_within(file_.get(), patience)) {
    throw Error(ErrorCode::kOutput, where_,
                fmt::format("another process writes {}", path_.string()),
                "wait until it has ended, or name another file");
  }
  return ::stat(path_.c_str(), &named) == 0 && is_same_file(opened, named);
}

std::string LockedFile::read(std::int64_t limit) const {
  const std::int64_t bytes = size();
  if (bytes > limit) {
    fail_input(where_, "{} has {} bytes; at most {} are read", path_.string(), bytes, limit);
  }
  std::string out(static_cast<std::size_t>(bytes), '\0');
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(file_.get(), out.data() + done, out.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_input(where_, "{} cannot be read: {}", path_.string(), std::strerror(errno));
    if (got == 0) fail_input(where_, "{} was cut short while it was read", path_.string());
    done += static_cast<std::size_t>(got);
  }
  return out;
}

void LockedFile::append(std::string_view text) {
  const std::int64_t before = size();
  if (const int error = write_all(file_.get(), text); error != 0) {
    if (::ftruncate(file_.get(), before) == 0 && is_ours_) ::unlink(path_.c_str());
    fail(error);
  }
  is_ours_ = false;
}

void LockedFile::cut(std::int64_t bytes) {
  if (::ftruncate(file_.get(), bytes) != 0) fail(errno);
}

void LockedFile::replace(std::string_view text) {
  OutputFile file(path_);
  // The new file is locked before it has the name, by a descriptor that outlives the writing.
  Descriptor next(::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0));
  if (next.get() < 0) fail(errno);
  ::flock(next.get(), LOCK_EX | LOCK_NB);
  file.write(text);
  file.commit();
  file_ = std::move(next);
  is_ours_ = false;
}

std::int64_t LockedFile::size() const {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) fail(errno);
  return info.st_size;
}

void LockedFile::fail(int error) const {
  throw Error(ErrorCode::kOutput, where_,
              fmt::format("{} cannot be written: {}", path_.string(), std::strerror(error)));
}

}  // namespace tracestep
