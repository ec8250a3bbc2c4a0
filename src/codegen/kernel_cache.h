// Compiled kernels on disk, so that a second process need not compile them again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

// A folder of files, one per kernel. A file holds its whole key, so that keys with the same hash
// are told apart, and a checksum: a damaged or truncated file counts as absent. Files are written
// under a temporary name and renamed, so several processes may share the folder. Nothing here
// throws: without a usable cache kernels are compiled again.
class KernelCache {
 public:
  // An empty path: nothing is kept.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The bytes added under `key`, which must name everything they depend on; nullopt: not there.
  std::optional<std::string> find(std::string_view key) const;
  // False: it could not be written.
  bool add(std::string_view key, std::string_view bytes) const;

 private:
  std::filesystem::path file_of(std::string_view key) const;

  std::filesystem::path folder_;
};

}  // namespace tracestep
