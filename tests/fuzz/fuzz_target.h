// Helpers of the fuzz targets. Each is one file with one LLVMFuzzerTestOneInput: it gives the bytes
// to a reader, which may refuse them with Error{kInput} or {kUsage}, and nothing else.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tracestep::fuzzing {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A file of these bytes that lives in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != std::ssize(bytes)) std::abort();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Aborts unless a property holds that every input must have.
inline void require(bool condition) {
  if (!condition) std::abort();
}

// True if `read` took the bytes. Aborts unless a refusal has a message that can be shown.
template <class Read>
bool accepts(Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& e) {
    require(e.code() == ErrorCode::kInput || e.code() == ErrorCode::kUsage);
    require(is_utf8(message_line(e.what())));
    return false;
  }
}

}  // namespace tracestep::fuzzing
