// Compiled kernels on disk, so that a second process need not compile them again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

// A folder of files, one per kernel. A file holds its whole key, so that two keys of one name are
// told apart, and a checksum: what is damaged or cut off counts as absent. Files appear by
// renaming, so processes may fill the folder at the same time. Nothing here throws: a cache that
// cannot be used costs time, not a run.
class KernelCache {
 public:
  // An empty path: nothing is kept.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // What was added under `key`: everything that the bytes depend on.
  std::optional<std::string> find(std::string_view key) const;
  // False: it could not be written.
  bool add(std::string_view key, std::string_view bytes) const;

 private:
  std::filesystem::path file_of(std::string_view key) const;

  std::filesystem::path folder_;
};

}  // namespace tracestep
