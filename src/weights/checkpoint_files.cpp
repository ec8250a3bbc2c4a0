#include "weights/checkpoint_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/utf8.h"
#include "weights/checkpoint_names.h"
#include "weights/weight_files.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kLongestName = 64;
constexpr const char* kLock = ".lock";
constexpr std::string_view kTemporary = ".tmp-", kReplaced = ".old-";

using Kind = Directory::Kind;

std::string temporary_name(std::int64_t step) {
  return std::string(kTemporary) + checkpoint_name(step);
}

std::string replaced_name(std::int64_t step) {
  return std::string(kReplaced) + checkpoint_name(step);
}

// Returns the step whose name follows `prefix`; nullopt: `name` has another form.
std::optional<std::int64_t> step_after(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return checkpoint_step(name.substr(prefix.size()));
}

// Returns the steps that names in `folder` stand for, newest first, whatever the files are.
std::vector<std::int64_t> list_steps(const Directory& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : folder.names()) {
    if (const auto step = checkpoint_step(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

// Returns the step of the checkpoint that a file's text names; nullopt: it names none.
std::optional<std::int64_t> step_named_in(const InputFile& file) {
  std::string name = file.text(kLongestName);
  if (name.ends_with('\n')) name.pop_back();
  return checkpoint_step(name);
}

// The step that DIR/latest or DIR/best names; nullopt when the file is missing. Errors: kInput when
// it names nothing.
std::optional<std::int64_t> step_named_by(const Directory& folder, const char* pointer) {
  if (!folder.has(pointer)) return std::nullopt;
  const InputFile file = folder.open_input(pointer, "checkpoint"_field);
  if (const auto step = step_named_in(file)) return step;
  fail_input("checkpoint"_field, "{} names no checkpoint", file.path().string());
}

// Steps, newest first; those after `latest`, which another run may have left, come last.
std::vector<std::int64_t> in_order_of_trust(const Directory& folder,
                                            std::vector<std::string>& warnings) {
  std::vector<std::int64_t> steps = list_steps(folder);
  try {
    const auto latest = step_named_by(folder, kLatestCheckpoint);
    if (!latest) return steps;
    std::ranges::stable_partition(steps, [&](std::int64_t step) { return step <= *latest; });
    if (!folder.has(checkpoint_name(*latest))) {
      warnings.push_back(fmt::format("{} is missing, though {} names it", checkpoint_name(*latest),
                                     kLatestCheckpoint));
    }
  } catch (const Error& e) {
    warnings.push_back(e.text());
  }
  return steps;
}

// The damage that `error` reports, for a message. The text may quote bytes of the file.
std::string damage_of(const Error& error) {
  return "damaged: " + printable(error.text());
}

std::optional<Checkpoint> load_newest(const Directory& folder, Verify verify,
                                      std::map<std::int64_t, bool>& is_whole) {
  std::vector<std::string> damage;
  const std::vector<std::int64_t> steps = in_order_of_trust(folder, damage);
  for (std::int64_t step : steps) {
    try {
      Checkpoint found = read_checkpoint(folder, step, verify);
      if (step > steps.front()) {  // trusted less than an earlier one
        damage.push_back(fmt::format("{} is later than {} says: it may be another run's",
                                     checkpoint_name(step), kLatestCheckpoint));
      }
      found.warnings = std::move(damage);
      is_whole[step] = true;
      return found;
    } catch (const Error& e) {
      damage.push_back(fmt::format("{} is {}", checkpoint_name(step), damage_of(e)));
      is_whole[step] = false;
    }
  }
  if (damage.empty()) return std::nullopt;
  throw Error(ErrorCode::kInput, "checkpoint"_field,
              fmt::format("{} has no undamaged checkpoint: {}", folder.path().string(),
                          fmt::join(damage, "; ")),
              "start anew in another folder, or in this one with " TRACESTEP_OPTION(overwrite));
}

// Opens the folder for reading. `path`: a folder of checkpoints, or a file in it that names one.
Directory folder_at(const fs::path& path) {
  std::error_code ignored;
  const bool is_pointer = fs::is_regular_file(path, ignored);
  const fs::path place = is_pointer ? path.parent_path() : path;
  if (auto folder = Directory::open(place.empty() ? "." : place, ErrorCode::kInput)) return *folder;
  fail_input("checkpoint"_field, "{} cannot be read: {}", path.string(), std::strerror(errno));
}

[[noreturn]] void fail_output(const fs::path& path, const std::string& reason) {
  throw Error(ErrorCode::kOutput, "checkpoint"_field,
              fmt::format("{} cannot be written: {}", path.string(), reason));
}

// Opens a folder that should have been made; throws if it cannot. `error`: of making it, if any.
Directory opened_folder(const fs::path& path, const std::error_code& error) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_directory(status)) fail_output(path, "it is not a folder");
  if (error) fail_output(path, error.message());
  if (auto folder = Directory::open(path)) return *folder;
  fail_output(path, std::strerror(errno));
}

// Reads the name that the process which holds the lock has written to its file.
std::string holder_of(const FileHandle& lock) {
  std::array<char, 256> text{};
  const ssize_t size = ::pread(lock.get(), text.data(), text.size(), 0);
  return size > 0 ? escaped({text.data(), static_cast<std::size_t>(size)}) : "";
}

// Names this process in the lock, unless the file is another program's. A full disk only warns.
void sign(const FileHandle& lock) {
  const std::string holder = holder_of(lock);
  if (!holder.empty() && !holder.starts_with("process ")) return;
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string name = fmt::format("process {} on {}", ::getpid(), host.data());
  if (::ftruncate(lock.get(), 0) == 0 && ::pwrite(lock.get(), name.data(), name.size(), 0) < 0) {
    log_warn("[checkpoint] the lock does not name its process: {}", std::strerror(errno));
  }
}

}  // namespace

std::optional<Checkpoint> load_checkpoint(const fs::path& path, Verify verify) {
  std::map<std::int64_t, bool> is_whole;
  if (const auto folder = Directory::open(path, ErrorCode::kInput)) {
    return load_newest(*folder, verify, is_whole);
  }
  if (errno == ENOENT) return std::nullopt;
  if (errno == ENOTDIR) {
    fail_input("checkpoint"_field, "{} is not a folder of checkpoints", path.string());
  }
  fail_input("checkpoint"_field, "{} cannot be read: {}", path.string(), std::strerror(errno));
}

std::optional<Checkpoint> checkpoint_of_weights(const fs::path& path) {
  std::error_code ignored;  // reading the file will say it
  if (!fs::is_directory(path, ignored)) {
    if (fs::file_size(path, ignored) > kLongestName || ignored) return std::nullopt;
    const auto step = step_named_in(InputFile(path, "checkpoint"_field));
    return step ? std::optional(read_checkpoint(folder_at(path), *step, Verify::kAll))
                : std::nullopt;
  }
  auto found = load_checkpoint(path);
  if (!found) {
    refuse_foreign_weights(path);
    fail_input("checkpoint"_field, "there is no checkpoint in {}", path.string());
  }
  for (const std::string& warning : found->warnings) log_warn("[checkpoint] {}", warning);
  return found;
}

bool has_checkpoints(const fs::path& path) {
  const auto folder = Directory::open(path);
  return folder && !list_steps(*folder).empty();
}

Checkpoint load_checkpoint(const fs::path& path, std::int64_t step) {
  return read_checkpoint(folder_at(path), step, Verify::kDescription);
}

Directory open_unfinished_checkpoint(const fs::path& path, std::int64_t step) {
  if (const auto folder = Directory::open(path)) return folder->open_folder(temporary_name(step));
  fail_output(path, std::strerror(errno));
}

CheckpointWriter::CheckpointWriter(const fs::path& folder, int keep)
    : made_(folder), folder_(opened_folder(folder, made_.error())), keep_(keep) {
  if (keep < 1) fail_usage("checkpoint"_field, "{} checkpoints cannot be kept; at least 1", keep);
  lock();
  for (const char* pointer : {kLatestCheckpoint, kBestCheckpoint}) {
    const auto kind = folder_.kind_of(pointer);
    if (kind == Kind::kFolder || kind == Kind::kOther) {
      fail_output(folder_.path() / pointer, "it is not a regular file");
    }
  }
  try {
    best_ = step_named_by(folder_, kBestCheckpoint);
  } catch (const Error& e) {
    log_warn("{}", e.what());
  }
  remove_stale_temporaries(folder_);
  remove_leftovers();
}

CheckpointWriter::~CheckpointWriter() {
  if (!made_.any()) return;
  try {
    if (folder_.names() == std::vector<std::string>{kLock}) folder_.discard(kLock);
  } catch (const Error&) {  // it cannot be read: it stays as it is
  }
}

void CheckpointWriter::lock() {
  lock_ = folder_.open_file(kLock, O_RDWR | O_CREAT, 0666);
  if (!lock_.is_open()) {
    fail_output(folder_.path() / kLock,
                errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  }
  // Some network file systems have no locks; then the user must ensure that one process writes.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string holder = holder_of(lock_);
    fail_output(folder_.path(), "another process writes its checkpoints there" +
                                    (holder.empty() ? "" : ": " + holder));
  }
  sign(lock_);
}

void CheckpointWriter::remove_leftovers() {
  for (const std::string& name : folder_.names()) {
    const auto replaced = step_after(kReplaced, name);
    if (replaced && folder_.kind_of(name) == Kind::kFolder &&
        !folder_.has(checkpoint_name(*replaced))) {
      // The process was killed after moving the old checkpoint away and before the new one was in
      // place: restore the old one.
      folder_.rename(name, checkpoint_name(*replaced));
    } else if (replaced || step_after(kTemporary, name)) {
      folder_.remove(name);
    }
  }
}

std::optional<Checkpoint> CheckpointWriter::load() {
  return load_newest(folder_, Verify::kAll, is_whole_);
}

void CheckpointWriter::start_anew(bool overwrite) {
  overwritten_ = list_steps(folder_);
  if (overwritten_.empty() || overwrite) return;
  throw Error(
      ErrorCode::kUsage, "checkpoint"_field,
      fmt::format("{} holds {} of an earlier run, {} the newest", folder_.path().string(),
                  overwritten_.size() == 1 ? "a checkpoint" : "checkpoints",
                  checkpoint_name(overwritten_.front())),
      "continue it with " TRACESTEP_OPTION(resume) ", start anew with " TRACESTEP_OPTION(overwrite) ", which removes them "
      "once the first new one is written, or take another folder");
}

bool CheckpointWriter::save(std::int64_t step, const WriteFiles& write) {
  const TemporaryFolder temporary(folder_, temporary_name(step));
  const Directory inside = folder_.open_folder(temporary_name(step));
  if (!write(inside)) return false;
  inside.sync();
  put_in_place(step);
  folder_.sync();
  write_file(folder_, kLatestCheckpoint, checkpoint_name(step) + "\n");
  is_whole_[step] = true;
  folder_.discard(replaced_name(step));
  if (!overwritten_.empty()) {
    folder_.discard(kBestCheckpoint);
    best_.reset();
  }
  for (std::int64_t old : std::exchange(overwritten_, {})) {
    if (old != step) remove_step(old);
  }
  prune(step);
  return true;
}

void CheckpointWriter::keep_best(std::int64_t step) {
  write_file(folder_, kBestCheckpoint, checkpoint_name(step) + "\n");
  best_ = step;
}

void CheckpointWriter::put_in_place(std::int64_t step) {
  const std::string place = checkpoint_name(step), replaced = replaced_name(step);
  folder_.remove(replaced);
  const bool replaces = folder_.has(place);
  if (replaces) folder_.rename(place, replaced);
  try {
    folder_.rename(temporary_name(step), place);
  } catch (const Error&) {
    if (replaces) folder_.rename(replaced, place);
    throw;
  }
}

bool CheckpointWriter::is_whole(std::int64_t step) {
  const auto known = is_whole_.find(step);
  if (known != is_whole_.end()) return known->second;
  try {
    read_checkpoint(folder_, step, Verify::kAll);
    return is_whole_[step] = true;
  } catch (const Error& e) {
    log_warn("[checkpoint] {} is {}; it stays as it is", checkpoint_name(step), damage_of(e));
    return is_whole_[step] = false;
  }
}

void CheckpointWriter::prune(std::int64_t step) {
  int kept = 0;
  for (std::int64_t old : list_steps(folder_)) {
    if (old > step || !is_whole(old)) continue;
    if (++kept > keep_ && old != best_) remove_step(old);
  }
}

void CheckpointWriter::remove_step(std::int64_t step) {
  try {
    // Renamed first: a half-removed folder must not look like a damaged checkpoint.
    folder_.remove(temporary_name(step));
    folder_.rename(checkpoint_name(step), temporary_name(step));
    folder_.remove(temporary_name(step));
    is_whole_.erase(step);
  } catch (const Error& e) {
    log_warn("{}", e.what());
  }
}

}  // namespace tracestep
