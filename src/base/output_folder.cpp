#include "base/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/output_file.h"
#include "base/temporaries.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr int kMostAttempts = 100;

// Returns the folder's path without links and final slash: renaming would replace a link.
fs::path place_of(const fs::path& path) {
  std::error_code ignored;
  const fs::path there = fs::canonical(path, ignored);
  return ignored ? fs::absolute(path / "").lexically_normal().parent_path() : there;
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path, About where)
    : path_(path), place_(place_of(path)), where_(std::move(where)) {
  std::error_code error;
  const fs::file_status status = fs::status(place_, error);
  if (fs::exists(status) && (!fs::is_directory(status) || !fs::is_empty(place_, error))) {
    fail_taken();
  }
  if (place_.filename().native().size() > NAME_MAX) fail(ENAMETOOLONG);
  above_.emplace(place_.parent_path());
  parent_ = Directory::open(place_.parent_path());
  if (!parent_) fail(errno);
  remove_stale_temporaries(*parent_);
  create_temporary();
}

OutputFolder::~OutputFolder() {
  if (!temporary_.empty()) parent_->discard(temporary_);
}

void OutputFolder::create_temporary() {
  for (int i = 0; i < kMostAttempts; ++i) {
    const std::string name = temporary_name();
    if (::mkdirat(parent_->fd(), name.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      fail(errno);
    }
    // Until it is held, another process may take it for a stale one.
    FileHandle made = parent_->open_file(name, O_RDONLY | O_DIRECTORY);
    if (!made.is_open() && errno != ENOENT) fail(errno);
    if (!made.is_open() || !hold(made.get())) continue;
    lock_ = std::move(made);
    temporary_ = name;
    folder_ = parent_->open_folder(name);
    return;
  }
  fail(EEXIST);
}

void OutputFolder::commit() {
  folder_->sync();
  const std::string name = place_.filename().string();
  if (::renameat(parent_->fd(), temporary_.c_str(), parent_->fd(), name.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR) fail_taken();
    fail(errno);
  }
  temporary_.clear();
  parent_->sync();
}

void OutputFolder::fail_taken() const {
  throw Error(ErrorCode::kOutput, where_, fmt::format("{} is there already", path_.string()),
              "give a new folder, or an empty one");
}

void OutputFolder::fail(int error) const {
  throw Error(ErrorCode::kOutput, where_,
              fmt::format("{} cannot be written: {}", path_.string(), std::strerror(error)));
}

}  // namespace tracestep
