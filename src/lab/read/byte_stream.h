// Reads the bytes of a file in order, decompressed if the file is gzip. Only one part is in memory
// at a time, so a file may have any size.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <zlib.h>

namespace tracestep {

class ByteStream {
 public:
  // Opens a file. Throws Error{kInput} if it is missing or not a regular file.
  explicit ByteStream(const std::filesystem::path& path);

  // Reads the next bytes, at most as many as `out` holds; returns 0 at the end. Throws
  // Error{kInput} if the file cannot be read or its gzip data is damaged.
  std::size_t read(std::span<char> out);

  // True if the compressed data ended too early.
  bool is_cut() const { return is_cut_; }
  // The file's name, without its folder.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_{nullptr, gzclose_r};
  bool is_cut_ = false;
};

}  // namespace tracestep
