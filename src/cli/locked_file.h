// LockedFile: a file that is kept up to date over a long run, by one process at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace tracestep::cli {

class LockedFile {
 public:
  // Opens `path` (links are followed), made when it is missing, and locks it until the end; `where`
  // is the part in brackets of messages. Errors: kInput when it is no regular file; kOutput when it
  // cannot be written, or another process holds the lock.
  LockedFile(std::filesystem::path path, std::string where);

  // All of it. Errors: kInput, also for more than `limit` bytes.
  std::string read(std::int64_t limit) const;
  // The other members throw kOutput, and then the file is as it was.
  // Adds `text` at the end; on return it is on the disk.
  void append(std::string_view text);
  // Drops what lies behind the first `bytes`.
  void cut(std::int64_t bytes);
  // Puts a file of this content in its place, which is never there in part; the lock goes with it.
  void replace(std::string_view text);

 private:
  // Closes what it holds.
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

  bool lock();
  std::int64_t size() const;
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  std::string where_;
  bool is_ours_ = false;  // made here, and without content so far
  Descriptor file_;
};

}  // namespace tracestep::cli
