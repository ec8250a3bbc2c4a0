#include "train/log_file.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "base/input_file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output_file.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

// Returns the step of a line of a log; nullopt for a text that is no such line.
std::optional<std::int64_t> step_in(std::string_view line) {
  try {
    const Json json = Json::parse(line, "log");
    return json.find("loss") == nullptr ? std::nullopt : std::optional(json.at("step").as_int());
  } catch (const Error&) {
    return std::nullopt;
  }
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::size_t line) {
  throw Error(ErrorCode::kInput, "log"_field,
              fmt::format("line {} of {} is none of a training log", line, path.string()),
              "name another file, or remove this one");
}

// Returns the lines of the log up to `last_step`, without an incomplete last line. Warns if they
// end at another step; throws for a line that is not of a log.
std::string kept_lines(const std::filesystem::path& path, std::int64_t last_step) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "";
  std::string text = read_text_file(path, "log"_field, kMostBytes);
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

// Opens the file and locks it; returns a handle that is not open if there is no file.
FileHandle locked(const std::filesystem::path& path) {
  FileHandle file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  // Some network file systems have no locks.
  if (file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(ErrorCode::kOutput, "log"_field,
                fmt::format("{} is the log of another run that is under way", path.string()),
                "name another file");
  }
  return file;
}

}  // namespace

LogFile::LogFile(const std::filesystem::path& path, std::int64_t resumed_from) : path_(path) {
  if (path_.empty()) return;
  if (is_stream(path_)) {
    file_ = open_stream(path_);
    return;
  }
  const FileHandle earlier = locked(path_);  // until the new file is locked, which has its name
  write_file(path_, resumed_from > 0 ? kept_lines(path_, resumed_from) : "");
  file_ = locked(path_);
  if (!file_.is_open()) {
    throw Error(ErrorCode::kOutput, path_, "cannot be opened for the log");
  }
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
  const std::string text = line.dump() + "\n";
  if (const int error = file_.write(std::as_bytes(std::span(text))); error != 0) {
    throw Error(ErrorCode::kOutput, path_,
                fmt::format("the log cannot be written: {}", std::strerror(error)));
  }
}

}  // namespace tracestep
