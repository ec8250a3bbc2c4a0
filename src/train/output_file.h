// OutputFile: a file that appears whole or not at all. It is written under a temporary name in the
// same folder and takes its own name only once every byte is on the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace tracestep {

class OutputFile {
 public:
  // Creates the temporary file, so that a place that cannot be written is known at once.
  // Errors (all members): kOutput naming the path and the reason. An existing `path` must be a
  // regular file; a symbolic link is followed, so the link itself stays.
  explicit OutputFile(const std::filesystem::path& path);
  // Removes the temporary file unless it was committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Of the open file, for a lock that holds before the file has its name.
  int descriptor() const { return fd_; }
  // Flushes to disk and takes the name `path`, replacing what was there.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

// Writes `text` to `path` in the same all-or-nothing way.
void write_file(const std::filesystem::path& path, std::string_view text);
// Proves that `path` can be written, and leaves it as it is: for checks before a long run.
void check_writable(const std::filesystem::path& path);
// Makes renames and removals inside `folder` survive a power failure.
void sync_directory(const std::filesystem::path& folder);

}  // namespace tracestep
