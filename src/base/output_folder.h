// OutputFolder: a folder that appears whole or not at all. Its files are written to a folder with a
// temporary name in the same place, which is renamed once all of them are on the disk.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/directory.h"
#include "base/error.h"
#include "base/made_folders.h"

namespace tracestep {

class OutputFolder {
 public:
  // Takes a path that the user gave: a symbolic link is followed, folders above it are made, and
  // what ended processes left next to it is removed. Creates the temporary folder at once. Errors
  // (all members): kOutput under `where`, also where there is anything but an empty folder already.
  OutputFolder(const std::filesystem::path& path, About where);
  // Removes the temporary folder, and those that were made above it, unless it was committed.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const Directory& folder() const { return *folder_; }
  // Flushes the folder to disk and renames it to its own name, unless another process was quicker.
  void commit();

 private:
  void create_temporary();
  [[noreturn]] void fail_taken() const;
  [[noreturn]] void fail(int error) const;

  // The path as it was given, and the real place of the folder.
  std::filesystem::path path_, place_;
  About where_;
  std::string temporary_;
  std::optional<MadeFolders> above_;
  std::optional<Directory> parent_, folder_;
  FileHandle lock_;
};

}  // namespace tracestep
