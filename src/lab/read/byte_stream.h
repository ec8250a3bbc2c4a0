// The bytes of a file in order, inflated where the file is gzip, in parts: a file of any size takes
// the memory of one part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/input_file.h"

namespace tracestep {

class ByteStream {
 public:
  // Errors: kInput when the file is missing or no regular file.
  explicit ByteStream(const std::filesystem::path& path);
  ~ByteStream();

  // The next bytes, at most as many as `out` holds; 0 at the end. Errors: kInput when the file
  // cannot be read, or is damaged gzip.
  std::size_t read(std::span<char> out);

  // Says whether a compressed file ended before its end was due.
  bool is_cut() const { return is_cut_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  struct Inflater;

  std::size_t read_raw(std::span<char> out);
  std::size_t read_inflated(std::span<char> out);

  InputFile file_;
  std::uint64_t at_ = 0;
  std::unique_ptr<Inflater> inflater_;  // none for a plain file
  bool is_cut_ = false;
};

// The first bytes of a file as they are, 16 at most: what kind it is.
std::vector<unsigned char> first_bytes(const std::filesystem::path& path);

}  // namespace tracestep
