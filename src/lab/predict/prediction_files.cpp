#include "lab/predict/prediction_files.h"

#include "base/env.h"
#include "base/error.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/own_file.h"
#include "planning/device_traits.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{64} << 20;
constexpr const char* kFolder = "predict";
constexpr const char* kCalibrate = "tracestep predict --calibrate";

// Names the device for a file: "cpu-2-threads", "cuda-0".
std::string device_name(const Place& place) {
  const DeviceTraits traits = traits_named(place.device);
  if (traits.computes && traits.shares_kernels_among_threads()) {
    return fmt::format("{}-{}-threads", place.device, place.threads);
  }
  const bool has_index = !traits.has_own_links() || place.device.find(':') != std::string::npos;
  std::string out = place.device + (has_index ? "" : ":0");
  for (char& c : out) c = c == ':' ? '-' : c;
  return out;
}

// Makes the file's folder; a folder of the cache is for this user alone.
void make_folder_of(const fs::path& file) {
  const fs::path folder = file.parent_path(), cache = env::kernel_cache();
  std::error_code status;
  if (!cache.empty() && folder == cache / kFolder) {
    status = std::error_code(make_private_folders(folder), std::generic_category());
  } else if (!folder.empty()) {
    fs::create_directories(folder, status);
  }
  if (!status) return;
  throw Error(
      ErrorCode::kOutput, file.parent_path(), status.message(),
      "give a file of a folder that can be written, as " TRACESTEP_OPTION(calibration) " FILE");
}

}  // namespace

PredictionFiles prediction_files(const RunSpec& run, const fs::path& given) {
  fs::path calibration = given;
  if (given.empty()) {
    const std::string folder = env::kernel_cache();
    if (folder.empty()) {
      throw Error(ErrorCode::kUsage, "calibration"_field, "there is no folder for a calibration",
                  "name a file, or a folder with TRACESTEP_KERNEL_CACHE");
    }
    calibration = fs::path(folder) / kFolder / (device_name(run.place) + ".json");
  }
  fs::path history = calibration;
  history.replace_extension(".history.jsonl");
  return {calibration, history};
}

KnownDevice read_known_device(const PredictionFiles& files, const Json& identity) {
  std::error_code ignored;
  if (!fs::exists(files.calibration, ignored)) {
    throw Error(
        ErrorCode::kInput, "predict"_field,
        fmt::format("this machine is not calibrated: there is no {}", files.calibration.string()),
        fmt::format("run {} once for this device and these threads; it takes a minute on a quiet "
                    "machine; of a device that is not here " TRACESTEP_OPTION(published) " tells",
                    kCalibrate));
  }
  KnownDevice out;
  const std::string where = files.calibration.string();
  out.calibration =
      parse_calibration(read_text_file(files.calibration, where, kMostFileBytes), where, identity);
  out.model = make_time_model(out.calibration);
  if (fs::exists(files.history, ignored)) {
    const std::string name = files.history.string();
    History history = parse_history(read_text_file(files.history, name, kMostFileBytes), name);
    out.history = std::move(history.cells);
    if (const auto& faults = history.faults; !faults.empty()) {
      log_warn("{}; {} left out: delete such lines, or the file", faults.front(),
               faults.size() == 1 ? "it is" : fmt::format("{} lines are", faults.size()));
    }
  }
  return out;
}

NewCalibration::NewCalibration(PredictionFiles files) : files_(std::move(files)) {
  if (is_stream(files_.calibration)) {
    throw Error(
        ErrorCode::kOutput, "calibration"_field,
        fmt::format("{} keeps nothing that could be read again", files_.calibration.string()),
        "name a file");
  }
  make_folder_of(files_.calibration);
  check_writable(files_.calibration, "calibration"_field);
  lock_path_ = files_.calibration;
  lock_path_ += ".being-measured";
  lock_.emplace(lock_path_, "calibration");
  begun_path_ = files_.calibration;
  begun_path_ += ".begun";
}

NewCalibration::~NewCalibration() {
  std::error_code ignored;
  if (fs::is_empty(lock_path_, ignored)) fs::remove(lock_path_, ignored);  // else not this one's
}

std::optional<Calibration> NewCalibration::begun(const Json& identity) const {
  std::error_code ignored;
  if (!fs::exists(begun_path_, ignored)) return std::nullopt;
  const std::string where = begun_path_.string();
  try {
    return parse_calibration(read_text_file(begun_path_, where, kMostFileBytes), where, identity,
                             true);
  } catch (const Error&) {  // of another device, or damaged: it is measured anew
    return std::nullopt;
  }
}

void NewCalibration::keep(const Calibration& begun) const {
  write_file(begun_path_, text_of(begun));
}

void NewCalibration::write(const Calibration& calibration) const {
  write_file(files_.calibration, text_of(calibration));
  std::error_code ignored;
  fs::remove(begun_path_, ignored);
}

void keep_calibration(const PredictionFiles& files, const Calibration& calibration) {
  const std::string where = files.calibration.string();
  try {
    const std::string there = read_text_file(files.calibration, where, kMostFileBytes);
    const Calibration known = parse_calibration(there, where, calibration.identity);
    if (known.date_utc == calibration.date_utc) write_file(where, text_of(calibration));
  } catch (const Error& error) {
    log_warn("{}: what was measured for it is not kept", error.what());
  }
}

namespace {

// True if lines may be added to the file: it is empty, or has the mark or a line of our histories.
bool is_history(const std::string& text, const std::string& name) {
  return text.empty() || is_own(text, {}) || !parse_history(text, name).cells.empty();
}

}  // namespace

bool append_history(const PredictionFiles& files, const std::vector<CheckedCell>& cells) {
  constexpr std::chrono::seconds kPatience(10);  // others hold the lock for one line
  std::string lines;
  for (const CheckedCell& cell : cells) lines += line_of(cell) + "\n";
  try {
    make_folder_of(files.history);
    LockedFile file(files.history, files.history.string(), kPatience);
    const std::string before = file.read(kMostFileBytes);
    if (!is_history(before, files.history.string())) {
      throw Error(ErrorCode::kOutput, files.history, "it holds something else");
    }
    const bool is_torn = !before.empty() && !before.ends_with('\n');
    if (!lines.empty()) file.append(is_torn ? "\n" + lines : lines);
    return true;
  } catch (const Error& error) {
    log_warn("{}: errors of predictions are not kept", error.what());
    return false;
  }
}

}  // namespace tracestep
