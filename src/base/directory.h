// Directory: an open folder. Its members are reached through the handle, by names without slashes,
// and never through a symbolic link, so what a received folder holds cannot lead outside of it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/input_file.h"

namespace tracestep {

// An open file descriptor; the destructor closes it.
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
  // Writes all bytes. Returns 0, or the errno of the failure.
  int write(std::span<const std::byte> bytes) const;
  // Gives up ownership: the caller closes the descriptor.
  int release() { return std::exchange(fd_, -1); }
  // Returns 0, or the errno of a write that failed earlier. Does nothing when already closed.
  int close();

 private:
  int fd_;
};

// Creates the folder and what is missing above it, for this user alone (mode 700). Returns 0, or
// the errno of the failure.
int make_private_folders(const std::filesystem::path& path);

// An open folder. Copies are cheap: they share the handle.
class Directory {
 public:
  enum class Kind { kFolder, kFile, kLink, kOther };

  // Opens a path that the user gave; symbolic links in it are followed. nullopt, with errno set, if
  // it cannot be opened. Members that throw use the code `failure` (kInput or kOutput) unless
  // stated otherwise.
  static std::optional<Directory> open(const std::filesystem::path& path,
                                       ErrorCode failure = ErrorCode::kOutput);
  // Opens the member `name`, which must be a folder and not a symbolic link; throws if it is not.
  Directory open_folder(const std::string& name) const;

  const std::filesystem::path& path() const { return path_; }
  // Returns the descriptor, for calls such as faccessat(2); valid as long as this object.
  int fd() const { return handle_->get(); }
  // Returns the names of all members in no particular order, without "." and "..". Throws.
  std::vector<std::string> names() const;
  // Returns the kind of the member itself, no link being followed; nullopt: it does not exist.
  std::optional<Kind> kind_of(const std::string& name) const;
  bool has(const std::string& name) const { return kind_of(name).has_value(); }

  // Opens the member `name` as openat(2) does, without following links. On failure the result is
  // not open and errno is set: ELOOP for a link.
  FileHandle open_file(const std::string& name, int flags, mode_t mode = 0) const;
  // Opens the regular file `name` for reading; a symbolic link is an error too. Throws
  // Error{kInput}, as InputFile does.
  InputFile open_input(const std::string& name, const About& where) const;
  // Makes a folder. The members from here on throw Error{kOutput}.
  void make_folder(const std::string& name) const;
  // Renames a member; a file or symbolic link called `to` is replaced.
  void rename(const std::string& from, const std::string& to) const;
  // Removes a file, a link (never its target), or a folder with its whole content. A missing member
  // is not an error.
  void remove(const std::string& name) const;
  // Removes a member that is no longer needed. A failure only logs a warning, since nothing but
  // space is lost.
  void discard(const std::string& name) const;
  // Makes renames and removals inside survive a power failure.
  void sync() const;

 private:
  Directory(std::filesystem::path path, FileHandle handle, ErrorCode failure);
  int remove_tree(const std::string& name) const;

  std::filesystem::path path_;
  ErrorCode failure_;
  std::shared_ptr<const FileHandle> handle_;
};

// A new folder in `parent` for files that are still being written, in place of a member `name`; the
// destructor removes it unless it was renamed. Throws Error{kOutput}.
class TemporaryFolder {
 public:
  TemporaryFolder(const Directory& parent, std::string name)
      : parent_(parent), name_(std::move(name)) {
    parent_.remove(name_);
    parent_.make_folder(name_);
  }
  ~TemporaryFolder() { parent_.discard(name_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  const Directory& parent_;
  std::string name_;
};

}  // namespace tracestep
