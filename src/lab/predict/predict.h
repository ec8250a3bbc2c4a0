// Predicted time and bytes of runs, and the same runs measured.
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

// The sources of predictions.
struct Predictor {
  const TimeModel& model;
  std::span<const CheckedCell> history = {};
  std::optional<Link> link = {};       // between ranks
  const DevicePeaks* sheet = nullptr;  // the device's data sheet, for shares of its peaks
};

struct Prediction {
  RunSpec run;
  StepTime time = {};   // corrected by the history
  double model_ms = 0;  // by the model alone
  Correction correction = {};
  std::int64_t peak_bytes = 0, host_bytes = 0;  // in the device's memory, in the host's
  double product_flops = 0;  // the FLOPs that one rank computes, recomputation included
  double peak_tflops = 0;  // of its device, for dense products in the run's precision; 0: not known
  double watts = 0;        // the most that its device is allowed; 0: not known
  std::string where = {};  // where_of()
  std::string source = {};
  std::string assumes = {};  // of the device, beyond its traits; empty: nothing
  std::string detail = {};   // why there is no time
  Lack lack = {};            // of what memory, where that is why
  // Set by check_prediction(), and where there is no time; parts have the order of `time.parts`.
  std::optional<Status> status = {};
  double measured_ms = 0;
  std::vector<double> measured_parts_ms = {};
};

// Throws BudgetNotMet for a run that has no program.
Prediction predict_run(const RunSpec& run, const DeviceTraits& traits, const Predictor& predictor);
// As predict_run(), for a program that has been built; without its bytes.
Prediction predict_program(const RunSpec& run, const Program& program, const DeviceTraits& traits,
                           const Predictor& predictor);

// The factor that predict_program() applies to the model's time; it depends on the run alone.
double correction_factor(const RunSpec& run, const Predictor& predictor);

// Where the run is: "one H100 SXM", "4 × H100 SXM (dp=4,shard=3)", "4 GPUs (dp=4)"; empty: this
// device.
std::string where_of(const RunSpec& run, const DevicePeaks* sheet);
// Tokens that all ranks together train on, or read without backward, in a second; 0: no time.
double tokens_per_s(const Prediction& prediction);
// Shares of `peak_tflops`, in percent; 0: not known. MFU counts the products of the model once for
// each pass: forward's 2 FLOPs for each weight and token and those of attention over all scores,
// thrice with backward (Chowdhery et al., "PaLM", 2022, appendix B). HFU counts what the program
// computes: recomputation too, and not what a kernel of attention leaves out.
double mfu_percent(const Prediction& prediction);
double hfu_percent(const Prediction& prediction);

// Out of memory whatever it computes again: its peak is the least one, and there is no time.
Prediction prediction_beyond_budget(const RunSpec& run, const BudgetNotMet& error);

// Runs what was predicted, and adds what was measured.
void check_prediction(const DeviceFactory& make_device, const Protocol& protocol,
                      const StopSignal* stop, Prediction& prediction);

// Rows: runs, with band and peak, with a status where memory is limited, and, where they were
// checked, time and error. Notes say what the history changed and what was not calibrated.
Table prediction_table(std::span<const Prediction> predictions);
// Rows: phases and components of one run, layers added up, and what lies between kernels.
Table prediction_parts_table(const Prediction& prediction);
// Rows: the checked cells. Notes: median and 90th percentile of the error.
Table history_table(std::span<const CheckedCell> history);
// "1.20 times the calibration's, as 3 checked steps of the history suggest", and what a factor that
// is no error says; empty where the history changed none.
std::string correction_note(std::span<const Prediction> predictions);
// "median 3.1 %, 90th percentile 8.0 % of 24 cells"; empty without cells.
std::string error_summary(std::span<const double> errors_percent);

}  // namespace tracestep
