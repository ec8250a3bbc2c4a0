// InputFile: a regular file, read part by part and never memory-mapped. When another process
// truncates it meanwhile, reading throws an error; a mapping would end the process by SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "base/error.h"

namespace tracestep {

class InputFile {
 public:
  // Opens a file. Errors: kInput when `path` is missing, unreadable, or not a regular file; never
  // blocks on a FIFO. `where` is the part in brackets of all messages.
  explicit InputFile(std::filesystem::path path, About where = "file");
  // Takes over `fd`, which is open for reading; `path` is for messages. Errors as of a path.
  InputFile(int fd, std::filesystem::path path, About where);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  // Returns the size in bytes at the time the file was opened.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  // Fills `out` with the bytes from `offset` on; several threads may read at once.
  // Errors: kInput when the file ends before `out` is full, or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  // Returns the whole content, for small files. Errors: kInput, also when there are more than
  // `limit` bytes.
  std::string text(std::uint64_t limit) const;
  // Hands all bytes to `visit` in order, in parts of 1 MiB (the last one may be shorter).
  void for_each_part(const std::function<void(std::span<const std::byte>)>& visit) const;

 private:
  [[noreturn]] void fail_short() const;

  std::filesystem::path path_;
  About where_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

// Reads the whole of a small file, without a UTF-8 byte order mark. Throws as InputFile and text(),
// and for UTF-16.
std::string read_text_file(const std::filesystem::path& path, const About& where,
                           std::uint64_t limit);

}  // namespace tracestep
