// Folders that are created for an output before it is certain that the output will be written.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace tracestep {

class MadeFolders {
 public:
  // Makes the folder and what is missing above it; what could not be made is in error().
  explicit MadeFolders(std::filesystem::path path);
  // Removes folders that are still empty, so that a run which is refused leaves nothing.
  ~MadeFolders();
  MadeFolders(MadeFolders&&) noexcept = default;
  MadeFolders& operator=(MadeFolders&&) = delete;

  const std::error_code& error() const { return error_; }
  bool any() const { return !made_.empty(); }

 private:
  std::vector<std::filesystem::path> made_;  // the innermost first
  std::error_code error_;
};

}  // namespace tracestep
