// Experiments on number formats: their range and spacing, where sums in them stop growing, which
// ops mixed precision runs in which format, and the cost and error of a step in each.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/report/table.h"
#include "lab/time/cell.h"

namespace tracestep {

// A row for each number format: bits, range, spacing, and the largest number whose square is
// finite. Computed from the conversions of base/half.h and the compiler's types.
Table format_table();

// --- sums ---------------------------------------------------------------------------------------

// A sum of `count` equal terms, added one by one.
struct Accumulation {
  std::string name;
  std::int64_t count = 1000;
  double term = 0.01;
  DType sum_dtype = DType::kF32, term_dtype = DType::kF32;
};
// The seven experiments on sums; the last one in three formats.
std::vector<Accumulation> accumulations();

struct Accumulated {
  double value = 0;
  std::int64_t stall = 0;  // How many additions changed the sum; `count` if all did.
};
// Sums up: each addition is done in float32 and rounded to the sum's dtype.
Accumulated accumulate(const Accumulation& experiment);
// Adds by the device's own kernels: a program that adds once, run `count` times. nullopt on a
// device without the dtypes.
std::optional<double> accumulate_on(Device& device, const Accumulation& experiment);

// A row for each experiment: value, error, after how many terms the sum stops growing, and why;
// with `device` also the device's value and whether its bits are the same.
Table accumulation_table(Device* device = nullptr);

// --- mixed precision ----------------------------------------------------------------------------
// Rows: value of a small model (linear, ReLU, layer norm, linear, loss) under autocast to float16
// and to bfloat16; columns: dtype, op, class and reason, read from the program after the pass.
Table autocast_table();
// Rows: precision class; columns: its rule and the ops that have it.
Table precision_class_table();

// --- normalisation ------------------------------------------------------------------------------
// Rows: norm, format, size of the input, and the one step that is computed in the format (the
// others in float32); columns: error against float64, the share of results that are not finite.
Table norm_table(std::uint64_t seed = 0);
std::vector<Column> norm_columns();

// --- steps ---------------------------------------------------------------------------------------

// How much of a model is compared with float64, which is slow.
struct ErrorSpec {
  std::int64_t layers = 2;   // The most layers; 0: no errors are computed.
  std::int64_t tokens = 16;  // The most tokens, of one sequence.
};
struct StepError {
  std::int64_t layers = 0;
  // Relative errors: of the loss, and by norms of the logits and the gradients.
  double loss = 0, logits = 0, gradients = 0;
};
// Runs a step in float64, against which precisions are measured: for the model cut to
// `error.layers`, with the same seed. The float64 result is kept between calls while only the
// precision or the executor changes, because it takes far longer than the step compared with it.
class StepErrors {
 public:
  StepErrors(DeviceFactory make_reference, const ErrorSpec& error);
  ~StepErrors();
  StepErrors(const StepErrors&) = delete;
  StepErrors& operator=(const StepErrors&) = delete;

  // The errors of a run; nullopt if no layers are asked for or a captured model is unfit for it.
  std::optional<StepError> of(const DeviceFactory& make_device, const RunSpec& step);

 private:
  class CutModel;
  const DeviceFactory make_reference_;
  const ErrorSpec error_;
  std::unique_ptr<CutModel> exact_;
  std::string exact_key_;  // Identifies the run of the stored float64 result.
};

struct PrecisionCell {
  CellResult result;
  std::optional<StepError> error;
};
// Rows: cell; columns: time, speed against fp32, peak, errors against float64.
Table precision_step_table(std::span<const PrecisionCell> cells);

// For each cell in another precision than fp32 whose fp32 cell also ran, a row for each component:
// the kernel times of forward and backward in a recorded step, the same in fp32, and the ratio.
Table precision_component_table(std::span<const PrecisionCell> cells);
// The cell that differs from this one only in being fp32; nullptr if there is none or it failed.
const CellResult* in_fp32(std::span<const PrecisionCell> cells, const CellResult& of);

}  // namespace tracestep
