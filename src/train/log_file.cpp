#include "train/log_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>

#include "base/input_file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output_file.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

// The step of a line that a log may hold; nullopt for any other text.
std::optional<std::int64_t> step_in(std::string_view line) {
  try {
    const Json json = Json::parse(line, "log");
    return json.find("loss") == nullptr ? std::nullopt : std::optional(json.at("step").as_int());
  } catch (const Error&) {
    return std::nullopt;
  }
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::size_t line) {
  throw Error(ErrorCode::kInput, "log",
              fmt::format("line {} of {} is none of a training log", line, path.string()),
              "name another file, or remove this one");
}

// The lines of an earlier run whose steps will not be trained again, without an incomplete last
// line.
std::string kept_lines(const std::filesystem::path& path, std::int64_t last_step) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "";
  std::string text = read_text_file(path, "log", kMostBytes);
  std::size_t kept = 0, number = 0;
  std::int64_t last_kept = last_step;
  for (std::size_t end; (end = text.find('\n', kept)) != std::string::npos; kept = end + 1) {
    const auto step = step_in(std::string_view(text).substr(kept, end - kept));
    ++number;
    if (!step) refuse(path, number);
    if (*step > last_step) break;
    last_kept = *step;
  }
  if (last_kept != last_step) {
    log_warn("[log] {} ends with step {}, the checkpoint is step {}: it may be another run's log",
             path.string(), last_kept, last_step);
  }
  text.resize(kept);
  return text;
}

// The file, locked. Not open where there is none, or no regular file: /dev/null is not locked.
FileHandle locked(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return FileHandle();
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // Some network file systems have no locks.
  if (file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(ErrorCode::kOutput, "log",
                fmt::format("{} is the log of another run that is under way", path.string()),
                "name another file");
  }
  return file;
}

}  // namespace

void check_log(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return;
  const InputFile file(path, "log");
  constexpr std::uint64_t kLongestLine = 4096;
  std::string start(std::min(file.size(), kLongestLine), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  const std::size_t end = start.find('\n');
  // A file without a complete line is new, or was interrupted in its first line.
  const bool is_torn = end == std::string::npos && start.starts_with("{\"step\":");
  if (!start.empty() && !is_torn && !step_in(start.substr(0, end))) refuse(path, 1);
}

LogFile::LogFile(const std::filesystem::path& path, std::int64_t resumed_from) : path_(path) {
  if (path_.empty()) return;
  const FileHandle earlier = locked(path_);  // until the new file is locked, which has its name
  write_file(path_, resumed_from > 0 ? kept_lines(path_, resumed_from) : "");
  file_.open(path_, std::ios::app);
  if (!file_) throw Error(ErrorCode::kOutput, path_.string(), "cannot be opened for the log");
  lock_ = locked(path_);
}

void LogFile::add(const TrainStep& step) {
  if (path_.empty()) return;
  Json line = Json::object();
  line["step"] = step.step;
  line["loss"] = step.loss;
  line["grad_norm"] = step.grad_norm;
  line["lr"] = step.lr;
  line["tokens_per_s"] = step.tokens_per_s;
  if (step.validation_loss) line["validation_loss"] = *step.validation_loss;
  if (step.loss_scale) {
    line["loss_scale"] = *step.loss_scale;
    line["skipped_steps"] = step.skipped_steps;
  }
  file_ << line.dump() << '\n';
  flush();
}

void LogFile::flush() {
  if (path_.empty()) return;
  file_.flush();
  if (!file_) throw Error(ErrorCode::kOutput, path_.string(), "the log cannot be written");
}

}  // namespace tracestep
