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
  // A path that the user gave: a symbolic link is followed, so the link itself stays. Unfinished
  // temporary files of ended processes in the folder are removed. Creates the temporary file at
  // once, so that an unwritable path is reported early. Errors (all members): kOutput naming the
  // path and the reason. An existing file of that name must be a regular one.
  explicit OutputFile(const std::filesystem::path& path);
  // A member of a folder: a symbolic link of this name is replaced, never followed.
  OutputFile(const Directory& folder, const std::string& name);
  // Removes the temporary file unless it was committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // The open file's descriptor, for taking a lock before the file has its name.
  int descriptor() const { return file_.get(); }
  // Flushes to disk and renames the file to its own name, replacing an existing one.
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
// Checks that `path` can be written without changing it, before a long run. Errors: kOutput.
void check_writable(const std::filesystem::path& path);

// From now on write_file() and check_writable() do nothing with paths that the user gave: another
// process of the same run writes the results.
void leave_results_to_another_process();

// Removes the temporary files that killed processes left in `folder`: those named ".tracestep-", 16
// hexadecimal digits, ".tmp" that no process has locked. A process keeps its temporary files locked
// until they are complete, so files in use are not touched. A file that cannot be removed stays.
void remove_stale_temporaries(const Directory& folder);

}  // namespace tracestep
