#include "train/log_file.h"

#include "base/json.h"
#include "train/output_file.h"

namespace tracestep {
namespace {

// The lines of an earlier run whose steps will not be trained again. A torn last line goes.
std::string kept_lines(const std::filesystem::path& path, std::int64_t last_step) {
  std::ifstream in(path);
  std::string out, line;
  while (std::getline(in, line)) {
    try {
      if (Json::parse(line, path.string()).at("step").as_int() > last_step) break;
    } catch (const Error&) {
      break;
    }
    out += line + "\n";
  }
  return out;
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
