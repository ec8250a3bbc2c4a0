#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text_encoding.h"
#include "base/units.h"

namespace tracestep {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

void require_regular(const About& where, const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) return;
  fail_input(where, "{} is {}, not a regular file", path, kind_of(info.st_mode));
}

}  // namespace

InputFile::InputFile(std::filesystem::path path, About where)
    : path_(std::move(path)), where_(std::move(where)) {
  const std::string name = path_.string();
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) fail_input(where_, "{} does not exist", name);
    fail_input(where_, "{} cannot be opened: {}", name, std::strerror(errno));
  }
  require_regular(where_, name, info);
  // O_NONBLOCK: the path may be a FIFO by now, and opening one would block.
  *this = InputFile(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path_, where_);
}

InputFile::InputFile(int fd, std::filesystem::path path, About where)
    : path_(std::move(path)), where_(std::move(where)), fd_(fd) {
  struct stat info {};
  try {
    if (fd_ < 0 || ::fstat(fd_, &info) != 0) {
      fail_input(where_, "{} cannot be read: {}", path_.string(), std::strerror(errno));
    }
    require_regular(where_, path_.string(), info);
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      where_(std::move(other.where_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(where_, other.where_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input(where_, "{} cannot be read: {}", path_.string(), std::strerror(errno));
    if (n == 0) fail_short();
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

std::string InputFile::text(std::uint64_t limit) const {
  if (size_ > limit) {
    fail_input(where_, "{} has {} bytes; at most {} are read", path_.string(), size_,
               format_bytes(static_cast<std::int64_t>(limit)));
  }
  std::string out(size_, '\0');
  read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

void InputFile::for_each_part(const std::function<void(std::span<const std::byte>)>& visit) const {
  constexpr std::uint64_t kPart = std::uint64_t{1} << 20;
  std::vector<std::byte> buffer(std::min(kPart, size_));
  for (std::uint64_t at = 0; at < size_; at += kPart) {
    const auto part = std::span(buffer).first(std::min(kPart, size_ - at));
    read(at, part);
    visit(part);
  }
}

void InputFile::fail_short() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) info.st_size = 0;
  throw Error(ErrorCode::kInput, where_,
              fmt::format("{} had {} bytes when it was opened and has {} now: it was cut short "
                          "while in use",
                          path_.string(), size_, info.st_size),
              "leave input files alone until the run has ended");
}

std::string read_text_file(const std::filesystem::path& path, const About& where,
                           std::uint64_t limit) {
  std::string out = InputFile(path, where).text(limit);
  const TextMark mark = byte_order_mark_of(out);
  if (mark != TextMark::kNone && mark != TextMark::kUtf8) {
    throw Error(ErrorCode::kInput, where,
                fmt::format("{} is text in UTF-{}, by the mark at its beginning", path.string(),
                            mark == TextMark::kUtf32 ? "32" : "16"),
                "write it in UTF-8");
  }
  out.erase(0, size_of(mark));
  return out;
}

}  // namespace tracestep
