#include "cli/prediction_files.h"

#include "base/env.h"
#include "base/error.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "cli/locked_file.h"

namespace tracestep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

// "cpu-2-threads", "cuda-0".
std::string device_name(const Place& place) {
  if (place.device == "cpu") return fmt::format("cpu-{}-threads", place.threads);
  std::string out = place.device == "cuda" ? "cuda:0" : place.device;
  for (char& c : out) c = c == ':' ? '-' : c;
  return out;
}

void make_folder(const fs::path& file) {
  std::error_code status;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), status);
  if (!status) return;
  throw Error(ErrorCode::kOutput, file.parent_path().string(), status.message(),
              "give a file of a folder that can be written, as --calibration FILE");
}

}  // namespace

PredictionFiles prediction_files(const RunSpec& run, const fs::path& given) {
  fs::path calibration = given;
  if (given.empty()) {
    const std::string folder = env::kernel_cache();
    if (folder.empty()) {
      throw Error(ErrorCode::kUsage, "--calibration", "there is no folder for a calibration",
                  "name a file, or a folder with TRACESTEP_KERNEL_CACHE");
    }
    calibration = fs::path(folder) / "predict" / (device_name(run.place) + ".json");
  }
  fs::path history = calibration;
  history.replace_extension(".history.jsonl");
  return {calibration, history};
}

KnownDevice read_known_device(const PredictionFiles& files, const Json& identity) {
  std::error_code ignored;
  if (!fs::exists(files.calibration, ignored)) {
    throw Error(ErrorCode::kInput, files.calibration.string(),
                "this device has not been calibrated for so many threads",
                "run tracestep predict --calibrate once; it takes about a minute");
  }
  KnownDevice out;
  const std::string where = files.calibration.string();
  out.calibration =
      parse_calibration(read_text_file(files.calibration, where, kMostBytes), where, identity);
  out.model = make_time_model(out.calibration);
  if (fs::exists(files.history, ignored)) {
    const std::string name = files.history.string();
    out.history = parse_history(read_text_file(files.history, name, kMostBytes), name);
  }
  return out;
}

void write_calibration(const PredictionFiles& files, const Calibration& calibration) {
  make_folder(files.calibration);
  write_file(files.calibration, text_of(calibration));
}

void append_history(const PredictionFiles& files, const std::vector<CheckedCell>& cells) {
  if (cells.empty()) return;
  make_folder(files.history);
  std::string lines;
  for (const CheckedCell& cell : cells) lines += line_of(cell) + "\n";
  LockedFile(files.history, files.history.string()).append(lines);
}

}  // namespace tracestep::cli
