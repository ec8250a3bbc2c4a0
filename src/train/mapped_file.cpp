#include "train/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace tracestep {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

void require_regular(const std::string& where, const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) return;
  fail_input(where, "{} is {}, not a regular file", path, kind_of(info.st_mode));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, const std::string& where) : path_(path) {
  const std::string name = path.string();
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) fail_input(where, "{} does not exist", name);
    fail_input(where, "{} cannot be opened: {}", name, std::strerror(errno));
  }
  require_regular(where, name, info);
  // O_NONBLOCK: what was a file a moment ago may be a FIFO now.
  map(FileHandle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), where);
}

MappedFile::MappedFile(const Directory& folder, const std::string& name, const std::string& where)
    : path_(folder.path() / name) {
  const FileHandle file = folder.open_file(name, O_RDONLY);
  if (!file.is_open() && errno == ENOENT) fail_input(where, "{} does not exist", path_.string());
  if (!file.is_open() && errno == ELOOP) {
    fail_input(where, "{} is a symbolic link", path_.string());
  }
  map(file, where);
}

void MappedFile::map(const FileHandle& file, const std::string& where) {
  const std::string name = path_.string();
  struct stat info {};
  if (!file.is_open() || ::fstat(file.get(), &info) != 0) {
    fail_input(where, "{} cannot be read: {}", name, std::strerror(errno));
  }
  require_regular(where, name, info);
  if (info.st_size == 0) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail_input(where, "{} cannot be mapped: {}", name, std::strerror(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace tracestep
