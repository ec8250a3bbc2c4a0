#include "base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>
#include <system_error>

#include "base/error.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

bool another_writes = false;

constexpr std::string_view kTemporaryPrefix = ".tracestep-", kTemporarySuffix = ".tmp";
constexpr std::size_t kTemporaryDigits = 16;
constexpr int kMostAttempts = 100;
constexpr int kMostLinks = 40;

// Not "output", which is a flag: the file may be that of another one.
[[noreturn]] void fail_output(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kOutput, "file",
              fmt::format("{} cannot be written: {}", path.string(), reason));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// `path` with symbolic links followed, whether the file exists or not: renaming onto a link would
// replace the link.
fs::path resolve(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) fail_output(path, error.message());
    path = folder_of(path) / target;
  }
  return path;
}

// The folder of `path`, without what killed processes left there.
Directory swept_folder_of(const fs::path& path) {
  if (!path.has_filename()) fail_output(path, "the name of a file is missing");
  const auto folder = Directory::open(folder_of(path));
  if (!folder) fail_output(path, std::strerror(errno));
  remove_stale_temporaries(*folder);
  return *folder;
}

// Random rather than the process id: in containers many programs have id 1.
std::string random_name() {
  std::random_device device;
  const std::uint64_t bits = std::uint64_t{device()} << 32 | device();
  return fmt::format("{}{:0{}x}{}", kTemporaryPrefix, bits, kTemporaryDigits, kTemporarySuffix);
}

bool is_temporary(std::string_view name) {
  if (!name.starts_with(kTemporaryPrefix) || !name.ends_with(kTemporarySuffix)) return false;
  name.remove_prefix(kTemporaryPrefix.size());
  name.remove_suffix(std::min(name.size(), kTemporarySuffix.size()));
  return name.size() == kTemporaryDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Marks a new temporary file as in use. False when another process has locked it to remove it as
// stale.
bool hold(const FileHandle& file) {
  // Other failures: a file system without locks, where stale files are not removed either.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat info {};
  return ::fstat(file.get(), &info) == 0 && info.st_nlink > 0;
}

}  // namespace

OutputFile::OutputFile(const fs::path& path) : OutputFile(Resolved{resolve(path)}) {}

OutputFile::OutputFile(const Resolved& place)
    : OutputFile(swept_folder_of(place.path), place.path.filename().string()) {}

OutputFile::OutputFile(const Directory& folder, const std::string& name)
    : folder_(folder), name_(name) {
  const auto kind = folder_.kind_of(name_);
  if (name_.size() > NAME_MAX) fail(ENAMETOOLONG);
  if (kind == Directory::Kind::kFolder) fail_output(folder_.path() / name_, "it is a directory");
  if (kind == Directory::Kind::kOther) {
    fail_output(folder_.path() / name_, "it exists and is not a regular file");
  }
  if (kind == Directory::Kind::kFile && ::faccessat(folder_.fd(), name_.c_str(), W_OK, 0) != 0) {
    fail(errno);
  }
  create_temporary();
}

OutputFile::~OutputFile() {
  if (file_.is_open()) ::unlinkat(folder_.fd(), temporary_.c_str(), 0);
}

void OutputFile::create_temporary() {
  for (int i = 0; i < kMostAttempts; ++i) {
    temporary_ = random_name();
    FileHandle file = folder_.open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (!file.is_open() && errno == EEXIST) continue;
    if (!file.is_open()) fail(errno);
    if (!hold(file)) continue;
    file_ = std::move(file);
    return;
  }
  fail(EEXIST);
}

void OutputFile::fail(int error) const {
  fail_output(folder_.path() / name_, std::strerror(error));
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void OutputFile::commit() {
  // EINVAL: a file system that has nothing to flush.
  if (::fsync(file_.get()) != 0 && errno != EINVAL) fail(errno);
  folder_.rename(temporary_, name_);
  if (const int error = file_.close(); error != 0) fail(error);
  folder_.sync();
}

void write_file(const fs::path& path, std::string_view text) {
  if (another_writes) return;
  OutputFile file(path);
  file.write(text);
  file.commit();
}

void write_file(const Directory& folder, const std::string& name, std::string_view text) {
  OutputFile file(folder, name);
  file.write(text);
  file.commit();
}

void check_writable(const fs::path& path) {
  if (another_writes) return;
  OutputFile probe(path);
}

void leave_results_to_another_process() {
  another_writes = true;
}

void remove_stale_temporaries(const Directory& folder) {
  for (const std::string& name : folder.names()) {
    if (!is_temporary(name) || folder.kind_of(name) != Directory::Kind::kFile) continue;
    const FileHandle file = folder.open_file(name, O_WRONLY);
    if (file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      ::unlinkat(folder.fd(), name.c_str(), 0);
    }
  }
}

}  // namespace tracestep
