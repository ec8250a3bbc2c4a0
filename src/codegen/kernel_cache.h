// Compiled kernels on disk, so that a second process need not compile them again.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/directory.h"

namespace tracestep {

// A folder of files, one per kernel. A file holds its whole key, so that keys with the same hash
// are told apart, and a checksum: a damaged or truncated file counts as absent. Files are written
// under a temporary name and renamed, so several processes may share the folder. When the files
// take more than the limit, those that were used longest ago are removed; files of other names stay
// whatever they are. The folder is made for this user alone. One that another user owns or may
// write to is not used, and neither is such a file: the device runs what they hold. Nothing here
// throws: without a usable cache kernels are compiled again.
class KernelCache {
 public:
  static constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;

  // Makes the cache of a folder; with an empty path nothing is kept.
  explicit KernelCache(std::filesystem::path folder, std::uintmax_t most_bytes = kMostBytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  const std::filesystem::path& folder() const { return folder_; }

  // Returns the bytes that were added under `key`, which must name everything they depend on;
  // nullopt: there are none. If the folder or the file may not be used, `problem` is set to a
  // sentence about it.
  std::optional<std::string> find(std::string_view key, std::string* problem = nullptr) const;
  // Adds bytes under a key. Returns false if they could not be written, with the reason in
  // `problem`.
  bool add(std::string_view key, std::string_view bytes, std::string* problem = nullptr) const;

 private:
  std::optional<Directory> open(std::string* problem) const;
  void remove_least_used(const Directory& folder) const;

  std::filesystem::path folder_;
  std::uintmax_t most_bytes_;
};

// Provides compiled kernels from the cache, or by a compiler.
class KernelBinaries {
 public:
  explicit KernelBinaries(KernelCache cache) : cache_(std::move(cache)) {}

  // Returns the binary of a key: from the cache, or from `compile`, and then adds it. Throws
  // what `compile` throws; if the cache cannot be used, a warning says so once.
  std::string get(std::string_view key, const std::function<std::string()>& compile);
  // Does the same as get() for several different keys. Up to `threads` of them are compiled at a
  // time; `compile` receives an index into `keys`. When all threads have ended, the first
  // failure is thrown.
  std::vector<std::string> get_all(std::span<const std::string> keys,
                                   const std::function<std::string(std::size_t)>& compile,
                                   unsigned threads);

 private:
  KernelCache cache_;
  std::atomic<bool> has_warned_ = false;
};

}  // namespace tracestep
