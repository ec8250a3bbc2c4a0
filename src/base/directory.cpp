#include "base/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

[[noreturn]] void fail(ErrorCode code, const fs::path& path, const char* what, int error) {
  throw Error(code, code == ErrorCode::kInput ? "input" : "file",
              fmt::format("{} cannot be {}: {}", path.string(), what, std::strerror(error)));
}

}  // namespace

int make_private_folders(const fs::path& path) {
  fs::path made;
  for (const fs::path& part : path) {
    made /= part;
    if (!part.empty() && ::mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) return errno;
  }
  return 0;
}

int FileHandle::close() {
  const int fd = std::exchange(fd_, -1);
  return fd >= 0 && ::close(fd) != 0 ? errno : 0;
}

int FileHandle::write(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

Directory::Directory(fs::path path, FileHandle handle, ErrorCode failure)
    : path_(std::move(path)),
      failure_(failure),
      handle_(std::make_shared<FileHandle>(std::move(handle))) {}

std::optional<Directory> Directory::open(const fs::path& path, ErrorCode failure) {
  FileHandle handle(::open(path.c_str(), kFolderFlags));
  if (!handle.is_open()) return std::nullopt;
  return Directory(path, std::move(handle), failure);
}

Directory Directory::open_folder(const std::string& name) const {
  FileHandle handle(::openat(fd(), name.c_str(), kFolderFlags | O_NOFOLLOW));
  if (!handle.is_open()) {
    fail(failure_, path_ / name, failure_ == ErrorCode::kInput ? "read" : "written", errno);
  }
  return {path_ / name, std::move(handle), failure_};
}

InputFile Directory::open_input(const std::string& name, const About& where) const {
  const fs::path place = path_ / name;
  // O_NONBLOCK: opening a FIFO must not wait.
  FileHandle file = open_file(name, O_RDONLY | O_NONBLOCK);
  if (!file.is_open() && errno == ENOENT) fail_input(where, "{} does not exist", place.string());
  if (!file.is_open() && errno == ELOOP) {
    fail_input(where, "{} is a symbolic link", place.string());
  }
  return {file.release(), place, where};
}

std::vector<std::string> Directory::names() const {
  // A handle of its own: the stream's position would be shared with copies of this one.
  const int own = ::openat(fd(), ".", kFolderFlags);
  DIR* stream = own < 0 ? nullptr : ::fdopendir(own);
  if (stream == nullptr) {
    const int error = errno;
    if (own >= 0) ::close(own);
    fail(failure_, path_, "read", error);
  }
  std::vector<std::string> out;
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") out.push_back(name);
    errno = 0;
  }
  const int error = errno;
  ::closedir(stream);
  if (error != 0) fail(failure_, path_, "read", error);
  return out;
}

std::optional<Directory::Kind> Directory::kind_of(const std::string& name) const {
  struct stat info {};
  if (::fstatat(fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return std::nullopt;
  }
  if (S_ISDIR(info.st_mode)) return Kind::kFolder;
  if (S_ISREG(info.st_mode)) return Kind::kFile;
  return S_ISLNK(info.st_mode) ? Kind::kLink : Kind::kOther;
}

FileHandle Directory::open_file(const std::string& name, int flags, mode_t mode) const {
  return FileHandle(
      ::openat(fd(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode));
}

void Directory::make_folder(const std::string& name) const {
  if (::mkdirat(fd(), name.c_str(), 0777) == 0) return;
  fail(ErrorCode::kOutput, path_ / name, "written", errno);
}

void Directory::rename(const std::string& from, const std::string& to) const {
  if (::renameat(fd(), from.c_str(), fd(), to.c_str()) == 0) return;
  fail(ErrorCode::kOutput, path_ / to, "written", errno);
}

void Directory::remove(const std::string& name) const {
  const int error = remove_tree(name);
  if (error != 0) fail(ErrorCode::kOutput, path_ / name, "removed", error);
}

int Directory::remove_tree(const std::string& name) const {
  const std::optional<Kind> kind = kind_of(name);
  if (!kind) return errno == ENOENT ? 0 : errno;
  if (kind == Kind::kFolder) {
    const Directory below = open_folder(name);
    for (const std::string& member : below.names()) {
      if (const int error = below.remove_tree(member); error != 0) return error;
    }
  }
  const int flags = kind == Kind::kFolder ? AT_REMOVEDIR : 0;
  return ::unlinkat(fd(), name.c_str(), flags) == 0 || errno == ENOENT ? 0 : errno;
}

void Directory::discard(const std::string& name) const {
  try {
    remove(name);
  } catch (const Error& e) {
    log_warn("{}", e.what());
  }
}

void Directory::sync() const {
  // EINVAL: a file system that has nothing to flush.
  if (::fsync(fd()) == 0 || errno == EINVAL) return;
  fail(ErrorCode::kOutput, path_, "written", errno);
}

}  // namespace tracestep
