// Where calibrations and the history of checked predictions are kept, and reading and writing them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/locked_file.h"
#include "lab/predict/history.h"
#include "lab/predict/time_model.h"
#include "run/run_spec.h"

namespace tracestep {

// The files of one device: its calibration, and its history of predictions that were checked.
struct PredictionFiles {
  std::filesystem::path calibration, history;
};
// Returns the files for the run's device and threads: `given`, or files in the cache folder
// (TRACESTEP_KERNEL_CACHE). Throws Error{kUsage} if the folder is switched off and no file is
// given.
PredictionFiles prediction_files(const RunSpec& run, const std::filesystem::path& given);

// What is known of a device: its calibration, checked against `identity`, and the history.
struct KnownDevice {
  Calibration calibration;
  std::unique_ptr<TimeModel> model;
  std::vector<CheckedCell> history;
};
// Reads calibration and history, and warns of lines left out. `identity`: see parse_calibration().
// Throws Error{kInput} if there is no calibration (it says how to make one), or a file is unusable.
KnownDevice read_known_device(const PredictionFiles& files, const Json& identity);

// A calibration file that is about to be written. The constructor creates the folder, and throws
// Error{kOutput} before anything is measured if the file cannot be written or another process
// calibrates for it.
class NewCalibration {
 public:
  explicit NewCalibration(PredictionFiles files);
  ~NewCalibration();
  NewCalibration(const NewCalibration&) = delete;
  NewCalibration& operator=(const NewCalibration&) = delete;

  // Returns what an earlier process measured of a calibration of this device but did not finish;
  // nullopt: nothing that can be continued.
  std::optional<Calibration> begun(const Json& identity) const;
  // Stores an unfinished calibration in a file next to the calibration, for begun().
  void keep(const Calibration& begun) const;
  // Writes the file, and removes the stored unfinished calibration.
  void write(const Calibration& calibration) const;

 private:
  PredictionFiles files_;
  std::filesystem::path lock_path_, begun_path_;
  std::optional<LockedFile> lock_;
};

// Replaces the calibration in the file by one to which products were added. If another process
// wrote a newer one meanwhile, that one stays. Warns if it cannot write.
void keep_calibration(const PredictionFiles& files, const Calibration& calibration);

// Adds cells to the history file, and waits while another process writes to it. Without cells it
// only tests whether it could. Returns false, after a warning, if the file cannot be written.
bool append_history(const PredictionFiles& files, const std::vector<CheckedCell>& cells);

}  // namespace tracestep
