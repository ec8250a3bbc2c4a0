#include "train/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail_output(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kOutput, "output",
              fmt::format("{} cannot be written: {}", path.string(), reason));
}

[[noreturn]] void fail_errno(const fs::path& path, int error) {
  fail_output(path, std::strerror(error));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// The file that `path` stands for: renaming onto a symbolic link would replace the link.
fs::path resolve(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  fs::path target = fs::weakly_canonical(path, error);
  if (error) fail_output(path, error.message());
  return target;
}

}  // namespace

OutputFile::OutputFile(const fs::path& path) : path_(resolve(path)) {
  static std::atomic<unsigned> counter{0};
  std::error_code error;
  if (!path_.has_filename()) fail_output(path, "the name of a file is missing");
  const fs::file_status status = fs::status(path_, error);
  if (fs::is_directory(status)) fail_output(path, "it is a directory");
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail_output(path, "it exists and is not a regular file");
  }
  if (fs::exists(status) && ::access(path_.c_str(), W_OK) != 0) fail_errno(path, errno);
  if (path_.filename().native().size() > 255) fail_errno(path, ENAMETOOLONG);
  temporary_ = folder_of(path_) / fmt::format(".tracestep-{}-{}.tmp", ::getpid(), counter++);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno(path, errno);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void OutputFile::commit() {
  // EINVAL: a file system that has nothing to flush.
  if (::fsync(fd_) != 0 && errno != EINVAL) fail_errno(path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(path_, errno);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail_errno(path_, errno);
  sync_directory(folder_of(path_));
}

void write_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

void check_writable(const fs::path& path) {
  OutputFile probe(path);
}

void sync_directory(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_errno(folder, errno);
  const int failure = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
  ::close(fd);
  if (failure != 0) fail_errno(folder, failure);
}

}  // namespace tracestep
