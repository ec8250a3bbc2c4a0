// Records how good predictions were: cells that were predicted and then measured. The next
// prediction takes a correction from them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "run/run_spec.h"

namespace tracestep {

struct CheckedCell {
  std::string date_utc;
  std::string calibrated_utc;  // The date of the calibration that the prediction used.
  Json key;                    // key_of() of the run
  double model_ms = 0;         // The time that the calibration alone predicts.
  // The prediction as it was printed, corrected by the history of that time.
  double predicted_ms = 0;
  double measured_ms = 0;

  // Returns the error of the printed prediction, in percent of the measured time.
  double error_percent() const { return 100.0 * (predicted_ms / measured_ms - 1.0); }
};

// Returns a line of the history file, without the line break.
std::string line_of(const CheckedCell& cell);
struct History {
  std::vector<CheckedCell> cells;
  // A message for each line that is left out: `where`, the line number, and why.
  std::vector<std::string> faults;
};
// Reads every line of the file. Damaged lines are left out, and lines with impossible times or
// times that are 1000 times the prediction.
History parse_history(const std::string& text, const std::string& where);

struct Correction {
  double factor = 1;  // Measured over predicted time, as the checked cells suggest.
  double spread = 0;  // The relative band within which nine of ten cells are expected.
  std::int64_t cells = 0;
};

// Returns the correction from checked cells of the same calibration. Cells count more if they share
// the run's precision, mode, executor, granularity, attention, recomputation and size; with few
// such cells the factor stays near 1. Only eight or more related cells can make the band narrower
// than `spread`, the calibration's own.
Correction correction_for(const RunSpec& run, std::span<const CheckedCell> history,
                          const std::string& calibrated_utc, double spread);

}  // namespace tracestep
