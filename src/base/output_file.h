// OutputFile: a file that appears whole or not at all. It is written under a temporary name in the
// same folder and takes its own name only once every byte is on the disk. What others wrote is not
// replaced unless the user says so.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/directory.h"

struct stat;

namespace tracestep {

class OutputFile {
 public:
  // Takes a path that the user gave: a symbolic link is followed, so the link itself stays.
  // Unfinished temporary files of ended processes in the folder are removed. Creates the temporary
  // file at once, so that an unwritable path is reported early. The file that is replaced keeps its
  // permissions, and its owner where this process may set one. A stream (is_stream) is written to
  // as it is. Errors (all members): kOutput naming the path and the reason; also for an existing
  // file that is_own_or_empty() does not know, where `about` is the field that gave the path.
  explicit OutputFile(const std::filesystem::path& path, const About& about = "file");
  // Writes a member of one of our folders: a symbolic link of that name is replaced, not followed.
  OutputFile(const Directory& folder, const std::string& name);
  // Removes the temporary file unless it was committed.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Returns the open file's descriptor, for a lock or permissions before the file has its name.
  int descriptor() const { return file_.get(); }
  // Flushes to disk and renames the file to its own name, replacing an existing one.
  void commit();

 private:
  void begin();
  void create_temporary(const struct stat* replaced);
  std::filesystem::path path() const;
  [[noreturn]] void fail(int error) const;

  std::optional<Directory> folder_;  // none: a stream
  std::string name_, temporary_;
  FileHandle file_;
};

// True if the path is written to directly: "-" and /dev/stdout, /dev/fd/N, a device, a FIFO, or a
// link to one of these.
bool is_stream(const std::filesystem::path& path);
// Opens a path that is_stream() for writing; a FIFO only if it has a reader. Throws Error{kOutput}.
FileHandle open_stream(const std::filesystem::path& path);

// Writes `text` to a file that appears whole or not at all, as an OutputFile does.
void write_file(const std::filesystem::path& path, std::string_view text);
void write_file(const Directory& folder, const std::string& name, std::string_view text);
// Checks that `path` can be written without changing it, before a long run. Errors: as OutputFile.
void check_writable(const std::filesystem::path& path, const About& about = "file");
// Checks that files can be written in `folder`, for files whose names are not known yet.
void check_writable_folder(const std::filesystem::path& folder);
// Lets outputs replace files of other programs from now on.
void allow_overwriting();

// From now on write_file() and check_writable() ignore paths that the user gave, because another
// process of the same run writes the results.
void leave_results_to_another_process();

// Removes the temporary files that killed processes left in `folder`: those named ".tracestep-", 16
// hexadecimal digits, ".tmp" that no process has locked. A process keeps its temporary files locked
// until they are complete, so files in use are not touched. A file that cannot be removed stays.
void remove_stale_temporaries(const Directory& folder);

}  // namespace tracestep
