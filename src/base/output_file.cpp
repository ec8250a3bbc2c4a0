#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/own_file.h"
#include "base/temporaries.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

bool another_writes = false, may_overwrite = false;

constexpr int kMostAttempts = 100;
constexpr int kMostLinks = 40;

[[noreturn]] void fail_output(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kOutput, "file",
              fmt::format("{} cannot be written: {}", path.string(), reason));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Returns the open descriptor of this process that a path names; -1: none. Output is written to
// this descriptor: a redirected stdout that is opened anew would be written from its start.
int descriptor_named(const fs::path& path) {
  if (path == "-") return STDOUT_FILENO;
  const std::string text = path.string();
  if (text == "/dev/stdout") return STDOUT_FILENO;
  if (text == "/dev/stderr") return STDERR_FILENO;
  for (std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!text.starts_with(folder)) continue;
    const char *const begin = text.data() + folder.size(), *const end = text.data() + text.size();
    int out = -1;
    const auto [stop, error] = std::from_chars(begin, end, out);
    if (error == std::errc() && stop == end) return out;
  }
  return -1;
}

// Returns `path` with symbolic links followed, whether the file exists or not: renaming onto a link
// would replace the link.
fs::path resolve(fs::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks && descriptor_named(path) < 0 && fs::is_symlink(path, error);
       ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) fail_output(path, error.message());
    path = folder_of(path) / target;
  }
  return path;
}

// Opens the folder of `path`, and removes the temporary files that killed processes left there.
Directory swept_folder_of(const fs::path& path) {
  if (!path.has_filename()) fail_output(path, "the name of a file is missing");
  const auto folder = Directory::open(folder_of(path));
  if (!folder) fail_output(path, std::strerror(errno));
  remove_stale_temporaries(*folder);
  return *folder;
}

// True if the file may be replaced without asking: it is the program's own, empty, or no file.
bool may_replace(const Directory& folder, const std::string& name) {
  if (folder.kind_of(name) != Directory::Kind::kFile) return true;  // nothing, or no file at all
  const FileHandle file = folder.open_file(name, O_RDONLY);
  return file.is_open() && is_own_or_empty(file.get());
}

// Gives the file the permissions and, where this process may, owner and group of the one that it
// replaces. If the group cannot be kept, the file's group gets no more rights than everybody.
void take_permissions(const FileHandle& file, const struct stat& replaced) {
  mode_t mode = replaced.st_mode & 0777u;
  const bool has_group = ::fchown(file.get(), replaced.st_uid, replaced.st_gid) == 0 ||
                         ::fchown(file.get(), static_cast<uid_t>(-1), replaced.st_gid) == 0;
  if (!has_group) mode = (mode & ~static_cast<mode_t>(S_IRWXG)) | (mode & S_IRWXO) << 3;
  ::fchmod(file.get(), mode);
}

}  // namespace

OutputFile::OutputFile(const fs::path& path, const About& about) {
  if (is_stream(path)) {
    name_ = path.string();
    file_ = open_stream(path);
    return;
  }
  const fs::path place = resolve(path);
  folder_ = swept_folder_of(place);
  name_ = place.filename().string();
  if (!may_overwrite && !may_replace(*folder_, name_)) {
    throw Error(ErrorCode::kOutput, about,
                fmt::format("{} would be replaced, and tracestep did not write it", path.string()),
                "name another file, or replace it by " TRACESTEP_OPTION(overwrite));
  }
  begin();
}

OutputFile::OutputFile(const Directory& folder, const std::string& name)
    : folder_(folder), name_(name) {
  begin();
}

OutputFile::~OutputFile() {
  if (folder_ && file_.is_open()) ::unlinkat(folder_->fd(), temporary_.c_str(), 0);
}

void OutputFile::begin() {
  if (name_.size() > NAME_MAX) fail(ENAMETOOLONG);
  const auto kind = folder_->kind_of(name_);
  if (kind == Directory::Kind::kFolder) fail_output(path(), "it is a directory");
  if (kind == Directory::Kind::kOther) fail_output(path(), "it exists and is not a regular file");
  if (kind != Directory::Kind::kFile) return create_temporary(nullptr);
  if (::faccessat(folder_->fd(), name_.c_str(), W_OK, 0) != 0) fail(errno);
  struct stat replaced {};
  if (::fstatat(folder_->fd(), name_.c_str(), &replaced, AT_SYMLINK_NOFOLLOW) != 0) fail(errno);
  create_temporary(&replaced);
}

// Creates the temporary file: private until it has the permissions of `replaced`, unless nullptr.
void OutputFile::create_temporary(const struct stat* replaced) {
  for (int i = 0; i < kMostAttempts; ++i) {
    temporary_ = temporary_name();
    FileHandle file = folder_->open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL,
                                         replaced == nullptr ? 0666 : 0600);
    if (!file.is_open() && errno == EEXIST) continue;
    if (!file.is_open()) fail(errno);
    if (!hold(file.get())) continue;
    if (replaced != nullptr) take_permissions(file, *replaced);
    file_ = std::move(file);
    return;
  }
  fail(EEXIST);
}

fs::path OutputFile::path() const {
  return folder_ ? folder_->path() / name_ : fs::path(name_);
}

void OutputFile::fail(int error) const {
  fail_output(path(), std::strerror(error));
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (const int error = file_.write(bytes); error != 0) fail(error);
}

void OutputFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void OutputFile::commit() {
  if (!folder_) return;
  // EINVAL: a file system that has nothing to flush.
  if (::fsync(file_.get()) != 0 && errno != EINVAL) fail(errno);
  folder_->rename(temporary_, name_);
  if (const int error = file_.close(); error != 0) fail(error);
  folder_->sync();
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

void check_writable(const fs::path& path, const About& about) {
  if (another_writes) return;
  if (!is_stream(path)) return void(OutputFile(path, about));
  // Opening a FIFO would wait for its reader, which the closing tells that all is written.
  const fs::path place = resolve(path);
  const int named = descriptor_named(place);
  const int flags = named < 0 ? 0 : ::fcntl(named, F_GETFL);
  if (named < 0 && ::access(place.c_str(), W_OK) != 0) fail_output(path, std::strerror(errno));
  if (flags < 0 || (named >= 0 && (flags & O_ACCMODE) == O_RDONLY)) {
    fail_output(path, std::strerror(EBADF));
  }
}

void check_writable_folder(const fs::path& folder) {
  if (another_writes) return;
  const auto open = Directory::open(folder);
  if (!open) fail_output(folder, std::strerror(errno));
  OutputFile(*open, "probe");
}

void allow_overwriting() {
  may_overwrite = true;
}

bool is_stream(const fs::path& path) {
  const fs::path place = resolve(path);
  struct stat info {};
  return descriptor_named(place) >= 0 ||
         (::stat(place.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)));
}

FileHandle open_stream(const fs::path& path) {
  const fs::path place = resolve(path);
  const int named = descriptor_named(place);
  FileHandle out(named < 0 ? ::open(place.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY)
                           : ::fcntl(named, F_DUPFD_CLOEXEC, 0));
  if (!out.is_open()) fail_output(path, std::strerror(errno));
  return out;
}

void leave_results_to_another_process() {
  another_writes = true;
}

}  // namespace tracestep
