// MappedFile: the bytes of a regular file, read-only, mapped rather than copied.
// Whoever else shortens the file while it is mapped makes reads beyond its new end fault.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "train/directory.h"

namespace tracestep {

class MappedFile {
 public:
  MappedFile() = default;
  // Errors: kInput when `path` is missing, unreadable, or anything but a regular file; never blocks
  // on a FIFO. `where` is the part in brackets of the message.
  explicit MappedFile(const std::filesystem::path& path, const std::string& where = "file");
  // The member `name` of a folder; a symbolic link is an error as well.
  MappedFile(const Directory& folder, const std::string& name, const std::string& where);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // Empty for a file of no bytes.
  std::span<const std::byte> bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void map(const FileHandle& file, const std::string& where);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace tracestep
