// Predicts time and bytes of runs, and measures the same runs to check the prediction.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/predict/history.h"
#include "lab/predict/time_model.h"
#include "lab/report/table.h"
#include "lab/time/cell.h"

namespace tracestep {

class BudgetNotMet;  // passes/recompute_budget.h

// The input of predictions besides the run: a model of times, checked cells, link and data sheet.
struct Predictor {
  const TimeModel& model;
  std::span<const CheckedCell> history = {};
  std::optional<Link> link = {};  // between ranks
  // The device's data sheet, for figures relative to its peaks; nullptr: not known.
  const DevicePeaks* sheet = nullptr;
};

struct Prediction {
  RunSpec run;
  StepTime time = {};   // The time, corrected by the history.
  double model_ms = 0;  // The time by the model alone.
  Correction correction = {};
  // The peak in the device's memory, and the bytes in the host's.
  std::int64_t peak_bytes = 0, host_bytes = 0;
  double product_flops = 0;  // the FLOPs that one rank computes, recomputation included
  // The device's peak for dense products in the run's precision; 0: not known.
  double peak_tflops = 0;
  double watts = 0;        // The power limit of the device; 0: not known.
  std::string where = {};  // where_of()
  std::string source = {};
  // What the prediction assumes of the device beyond its traits; empty: nothing.
  std::string assumes = {};
  std::string detail = {};  // Why there is no time; empty if there is one.
  Lack lack = {};           // The memory that is lacking, if that is the reason.
  // Set by check_prediction(), and if there is no time. Measured parts have the order of
  // `time.parts`.
  std::optional<Status> status = {};
  double measured_ms = 0;
  std::vector<double> measured_parts_ms = {};
};

// Predicts time and bytes of a run. Throws BudgetNotMet for a run that has no program.
Prediction predict_run(const RunSpec& run, const DeviceTraits& traits, const Predictor& predictor);
// Predicts only the time, from the program of the run, which the caller has built.
Prediction predict_program(const RunSpec& run, const Program& program, const DeviceTraits& traits,
                           const Predictor& predictor);

// Returns the factor that predict_program() applies to the model's time, from the run alone.
double correction_factor(const RunSpec& run, const Predictor& predictor);

// Returns the devices of a run in words: "one H100 SXM", "4 × H100 SXM (dp=4,shard=3)", "4 GPUs
// (dp=4)"; empty: this device.
std::string where_of(const RunSpec& run, const DevicePeaks* sheet);
// Returns the tokens per second that all ranks together train on, or read without backward; 0:
// there is no time.
double tokens_per_s(const Prediction& prediction);
// Shares of `peak_tflops`, in percent; 0: not known. mfu_percent() counts the products of the model
// once for each pass: forward's 2 FLOPs for each weight and token and those of attention over all
// scores, thrice with backward (Chowdhery et al., "PaLM", 2022, appendix B). hfu_percent() counts
// what the program computes, with recomputation and without what kernels of attention leave out.
double mfu_percent(const Prediction& prediction);
double hfu_percent(const Prediction& prediction);

// Returns the prediction for a run whose memory budget no recomputation meets: out of memory, with
// the least peak that was found and no time.
Prediction prediction_beyond_budget(const RunSpec& run, const BudgetNotMet& error);

// Measures a predicted run and adds the result to it.
void check_prediction(const DeviceFactory& make_device, const Protocol& protocol,
                      const StopSignal* stop, Prediction& prediction);

// Makes a row for each run: time with band, and peak; with a status if memory is limited; and time
// and error of checked runs. Notes say what the history changed and what was not calibrated.
Table prediction_table(std::span<const Prediction> predictions);
// Makes a table with a row for each phase and component of one run, with layers added up, and one
// for the time between kernels.
Table prediction_parts_table(const Prediction& prediction);
// Makes a row for each checked cell; notes give median and 90th percentile of the error.
Table history_table(std::span<const CheckedCell> history);
// Returns a note about the history's correction: "1.20 times the calibration's, as 3 checked steps
// of the history suggest", and what a large factor means. Empty if the history changed nothing.
std::string correction_note(std::span<const Prediction> predictions);
// Sums up errors: "median 3.1 %, 90th percentile 8.0 % of 24 cells"; empty without cells.
std::string error_summary(std::span<const double> errors_percent);

}  // namespace tracestep
