// LockedFile: a file that is kept up to date over a long run, by one process at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace tracestep {

class LockedFile {
 public:
  // Opens `path` (links are followed), creates it when missing, and locks it for the object's
  // lifetime; `where` is the part in brackets of messages. Errors: kInput when it is not a regular
  // file; kOutput when it cannot be written, or another process holds the lock for longer than
  // `patience`.
  LockedFile(std::filesystem::path path, About where, std::chrono::milliseconds patience = {});
  // Removes the file if this object created it and it is still empty.
  ~LockedFile();

  // Returns the whole content. Errors: kInput, also for more than `limit` bytes.
  std::string read(std::int64_t limit) const;
  // The members below throw kOutput on failure and then leave the file unchanged. Adds `text` at
  // the end; on return it is on the disk.
  void append(std::string_view text);
  // Truncates the file to its first `bytes` bytes.
  void cut(std::int64_t bytes);
  // Replaces the file by one with this content, all or nothing; the new file is locked.
  void replace(std::string_view text);

 private:
  // An owned file descriptor.
  class Descriptor {
   public:
    explicit Descriptor(int fd = -1) : fd_(fd) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
      std::swap(fd_, other.fd_);
      return *this;
    }
    int get() const { return fd_; }

   private:
    int fd_;
  };

  bool lock(std::chrono::milliseconds patience);
  std::int64_t size() const;
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  About where_;
  bool is_ours_ = false;  // created here and still empty
  Descriptor file_;
};

}  // namespace tracestep
