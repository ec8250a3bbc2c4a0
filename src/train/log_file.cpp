#include "train/log_file.h"

#include "base/input_file.h"
#include "base/json.h"
#include "train/output_file.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

bool is_kept(std::string_view line, const std::string& where, std::int64_t last_step) {
  try {
    return Json::parse(line, where).at("step").as_int() <= last_step;
  } catch (const Error&) {
    return false;
  }
}

// The lines of an earlier run whose steps will not be trained again. A torn last line goes.
std::string kept_lines(const std::filesystem::path& path, std::int64_t last_step) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "";
  std::string text = read_text_file(path, "--log", kMostBytes);
  std::size_t kept = 0;
  for (std::size_t end; (end = text.find('\n', kept)) != std::string::npos; kept = end + 1) {
    const std::string_view line = std::string_view(text).substr(kept, end - kept);
    if (!is_kept(line, path.string(), last_step)) break;
  }
  text.resize(kept);
  return text;
}

}  // namespace

LogFile::LogFile(const std::filesystem::path& path, std::int64_t resumed_from) : path_(path) {
  if (path_.empty()) return;
  write_file(path_, resumed_from > 0 ? kept_lines(path_, resumed_from) : "");
  file_.open(path_, std::ios::app);
  if (!file_) throw Error(ErrorCode::kOutput, path_.string(), "cannot be opened for the log");
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
