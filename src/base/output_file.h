// OutputFile: a file that appears whole or not at all. It is written under a temporary name in the
// same folder and takes its own name only once every byte is on the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/directory.h"

namespace tracestep {

class OutputFile {
 public:
  // A path that the person named: a symbolic link is followed, so the link itself stays. What
  // processes that have ended left unfinished in the folder is removed.
  // Creates the temporary file, so that a place that cannot be written is known at once.
  // Errors (all members): kOutput naming the path and the reason. What already has the name must be
  // a regular file.
  explicit OutputFile(const std::filesystem::path& path);
  // A member of a folder: a symbolic link of this name is replaced, never followed.
  OutputFile(const Directory& folder, const std::string& name);
  // Removes the temporary file unless it was committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Of the open file, for a lock that holds before the file has its name.
  int descriptor() const { return file_.get(); }
  // Flushes to disk and takes the name, replacing what was there.
  void commit();

 private:
  struct Resolved {
    std::filesystem::path path;
  };
  explicit OutputFile(const Resolved& place);
  void create_temporary();
  [[noreturn]] void fail(int error) const;

  Directory folder_;
  std::string name_, temporary_;
  FileHandle file_;
};

// Writes `text` in the same all-or-nothing way.
void write_file(const std::filesystem::path& path, std::string_view text);
void write_file(const Directory& folder, const std::string& name, std::string_view text);
// Proves that `path` can be written, and leaves it as it is: for checks before a long run.
void check_writable(const std::filesystem::path& path);

// Removes the temporary files that processes left in `folder` when they were killed: those of our
// pattern, ".tracestep-", 16 hexadecimal digits, ".tmp", that no process holds locked. A process
// holds its own locked until they are whole, so nobody else's are touched. What cannot be removed
// stays.
void remove_stale_temporaries(const Directory& folder);

}  // namespace tracestep
