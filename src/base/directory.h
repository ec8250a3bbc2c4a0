// Directory: an open folder. Its members are reached through the handle, by names without slashes,
// and never through a symbolic link, so what a received folder holds cannot lead outside of it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/input_file.h"

namespace tracestep {

// An open file, closed in the end.
class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  ~FileHandle() { close(); }
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Hands the descriptor to somebody else, who closes it.
  int release() { return std::exchange(fd_, -1); }
  // Returns 0, or the error number of what could not be written before. Nothing when closed.
  int close();

 private:
  int fd_;
};

// A cheap value: copies share the handle.
class Directory {
 public:
  enum class Kind { kFolder, kFile, kLink, kOther };

  // A path that the person named: symbolic links in it are followed. nullopt, with errno set, when
  // it cannot be opened. Members that throw say `failure`, kInput or kOutput, unless they say more.
  static std::optional<Directory> open(const std::filesystem::path& path,
                                       ErrorCode failure = ErrorCode::kOutput);
  // The member `name`, which must be a folder and no link. Throws.
  Directory open_folder(const std::string& name) const;

  const std::filesystem::path& path() const { return path_; }
  // For calls such as faccessat(2); lives as long as this.
  int fd() const { return handle_->get(); }
  // In no order, without "." and "..". Throws.
  std::vector<std::string> names() const;
  // Of the member itself, also where it is a link; nullopt when there is none.
  std::optional<Kind> kind_of(const std::string& name) const;
  bool has(const std::string& name) const { return kind_of(name).has_value(); }

  // openat(2) that follows no link. Not open on failure, with errno set: ELOOP for a link.
  FileHandle open_file(const std::string& name, int flags, mode_t mode = 0) const;
  // The regular file `name` for reading; a link is an error as well. Errors: kInput, as InputFile.
  InputFile open_input(const std::string& name, const std::string& where) const;
  // Errors below: kOutput.
  void make_folder(const std::string& name) const;
  // Replaces a file or a link of the name `to`.
  void rename(const std::string& from, const std::string& to) const;
  // A file, a link (never what it points to), or a folder with all it holds. Nothing there is fine.
  void remove(const std::string& name) const;
  // Makes renames and removals inside survive a power failure.
  void sync() const;

 private:
  Directory(std::filesystem::path path, FileHandle handle, ErrorCode failure);
  int remove_tree(const std::string& name) const;

  std::filesystem::path path_;
  ErrorCode failure_;
  std::shared_ptr<const FileHandle> handle_;
};

}  // namespace tracestep
