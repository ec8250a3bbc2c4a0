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

// The calibration of one device, and the history beside it.
struct PredictionFiles {
  std::filesystem::path calibration, history;
};
// For the run's device and threads: `given`, or a file of the cache folder
// (TRACESTEP_KERNEL_CACHE). Error{kUsage} when that is switched off and no file is given.
PredictionFiles prediction_files(const RunSpec& run, const std::filesystem::path& given);

// Measurements of a device: its calibration, checked against `identity`, and the history.
struct KnownDevice {
  Calibration calibration;
  std::unique_ptr<TimeModel> model;
  std::vector<CheckedCell> history;
};
// `identity`: see parse_calibration(). Warns of lines of the history that are left out. Errors:
// kInput when there is no calibration (it says how to make one), or a file is not usable.
KnownDevice read_known_device(const PredictionFiles& files, const Json& identity);

// A calibration that is about to be measured. Creates the folder. Errors: kOutput, before anything
// is measured, when the file cannot be written, or another process calibrates for it.
class NewCalibration {
 public:
  explicit NewCalibration(PredictionFiles files);
  ~NewCalibration();
  NewCalibration(const NewCalibration&) = delete;
  NewCalibration& operator=(const NewCalibration&) = delete;

  // Returns what an earlier process measured of a calibration of this device but did not finish;
  // nullopt: nothing that can be continued.
  std::optional<Calibration> begun(const Json& identity) const;
  // Keeps one that is not finished beside the file, for begun().
  void keep(const Calibration& begun) const;
  // Writes it, and removes what was kept before.
  void write(const Calibration& calibration) const;

 private:
  PredictionFiles files_;
  std::filesystem::path lock_path_, begun_path_;
  std::optional<LockedFile> lock_;
};

// Writes a calibration that products were added to, in place of the same one without them: a newer
// one, which another process wrote meanwhile, stays. Warns when it cannot.
void keep_calibration(const PredictionFiles& files, const Calibration& calibration);

// Adds cells, and waits for a process that does so too; without cells it only tries. False, after a
// warning, when the history cannot be written.
bool append_history(const PredictionFiles& files, const std::vector<CheckedCell>& cells);

}  // namespace tracestep
