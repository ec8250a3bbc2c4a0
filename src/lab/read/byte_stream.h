// The bytes of a file in order, inflated where the file is gzip, in parts: a file of any size takes
// the memory of one part.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <zlib.h>

namespace tracestep {

class ByteStream {
 public:
  // Errors: kInput when the file is missing or no regular file.
  explicit ByteStream(const std::filesystem::path& path);

  // The next bytes, at most as many as `out` holds; 0 at the end. Errors: kInput when the file
  // cannot be read, or is damaged gzip.
  std::size_t read(std::span<char> out);

  // Says whether a compressed file ended before its end was due.
  bool is_cut() const { return is_cut_; }
  // The file's name, without its folder.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_{nullptr, gzclose_r};
  bool is_cut_ = false;
};

}  // namespace tracestep
