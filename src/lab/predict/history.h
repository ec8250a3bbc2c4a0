// Records how good predictions were: cells that were predicted and then run, and the correction
// that the next prediction takes from them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "run/run_spec.h"

namespace tracestep {

struct CheckedCell {
  std::string date_utc;
  std::string calibrated_utc;  // the date of the calibration it was predicted from
  Json key;                    // key_of() of the run
  double model_ms = 0;         // predicted by the calibration alone
  double predicted_ms = 0;     // as it was told: corrected by the history before it
  double measured_ms = 0;

  // The error of the prediction as it was told, in percent of the measured time.
  double error_percent() const { return 100.0 * (predicted_ms / measured_ms - 1.0); }
};

// A line of the history file, without the line break.
std::string line_of(const CheckedCell& cell);
struct History {
  std::vector<CheckedCell> cells;
  std::vector<std::string> faults;  // of lines that are left out: `where`, the line, and why
};
// Every line of the file. Left out are damaged ones, and those whose times are none of a step, or
// 1000 times what was predicted.
History parse_history(const std::string& text, const std::string& where);

struct Correction {
  double factor = 1;  // measured over predicted, as the checked cells suggest
  double spread = 0;  // relative; nine of ten cells are expected within it
  std::int64_t cells = 0;
};

// From the cells of the same calibration. Those count most that share the run's precision, mode,
// executor, granularity, attention, recomputation and size; the factor stays near 1 while few do.
// Fewer than eight related cells do not make the band narrower than `spread`, that of the
// calibration.
Correction correction_for(const RunSpec& run, std::span<const CheckedCell> history,
                          const std::string& calibrated_utc, double spread);

}  // namespace tracestep
