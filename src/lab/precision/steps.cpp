// Steps in each precision: time, peak and error side by side.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "exec/eager.h"
#include "ir/print.h"
#include "lab/measure/statistics.h"
#include "lab/measure/step_inputs.h"
#include "lab/precision/tables.h"
#include "lab/report/fields.h"
#include "train/model_store.h"

namespace tracestep {
namespace {

std::vector<double> doubles_of(const HostTensor& x) {
  std::vector<double> out;
  const auto take = [&]<class T>(std::span<const T> values, auto&& widen) {
    out.reserve(values.size());
    for (const T& v : values) out.push_back(widen(v));
  };
  const auto plain = [](auto v) { return static_cast<double>(v); };
  const auto narrow = [](auto v) { return static_cast<double>(to_float(v)); };
  switch (x.dtype) {
    case DType::kF64: take(x.as<double>(), plain); break;
    case DType::kF32: take(x.as<float>(), plain); break;
    case DType::kBF16: take(x.as<BF16>(), narrow); break;
    case DType::kF16: take(x.as<F16>(), narrow); break;
    default: fail_usage("precision", "{} is not floating", name_of(x.dtype));
  }
  return out;
}

// Squares of a difference and of what it is measured against; values that are not finite make the
// error infinite.
struct Distance {
  double difference = 0, size = 0;

  void add(const HostTensor& value, const HostTensor& exact) {
    const std::vector<double> a = doubles_of(value), b = doubles_of(exact);
    TRACESTEP_CHECK(a.size() == b.size(), "{} and {} values", a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double d = std::isfinite(a[i]) ? a[i] - b[i] : INFINITY;
      difference += d * d;
      size += b[i] * b[i];
    }
  }
  double relative() const { return size > 0 ? std::sqrt(difference / size) : 0.0; }
};

// All that the exact numbers depend on.
std::string key_of(const StepSpec& spec, std::uint64_t seed) {
  return fmt::format("{}\n{}", seed, print(loss_program(spec.model, spec.shape, true)));
}

}  // namespace

// Loss, logits and gradients of the cut model on one device. The executor stays alive for reading.
class StepErrors::CutModel {
 public:
  CutModel(const DeviceFactory& make_device, const StepSpec& spec, std::uint64_t seed)
      : device_(make_device()), store_(*device_) {
    PipelineOptions options = pipeline_options(spec);
    executor_ = std::make_unique<EagerExecutor>(
        store_, lowered(loss_program(spec.model, spec.shape, true), options, *device_));
    initialize_parameters(store_, seed);
    set_step_inputs(*executor_, spec, seed);
    executor_->run();
    device_->synchronize();
  }
  HostTensor output(std::string_view name) const { return executor_->output(name); }
  const std::vector<Output>& outputs() const { return executor_->program().outputs; }

 private:
  std::unique_ptr<Device> device_;
  Store store_;
  std::unique_ptr<EagerExecutor> executor_;
};

StepErrors::StepErrors(DeviceFactory make_reference, const ErrorSpec& error)
    : make_reference_(std::move(make_reference)), error_(error) {}
StepErrors::~StepErrors() = default;

std::optional<StepError> StepErrors::of(const DeviceFactory& make_device, const CellSpec& spec) {
  if (error_.layers == 0) return std::nullopt;
  StepSpec cut = spec.step;
  cut.mode = Mode::kForwardBackward;
  cut.gradients = GradientKind::kTransient;
  cut.model.layers = std::min(cut.model.layers, error_.layers);
  cut.shape = {.batch = 1, .context = std::min(cut.shape.context, error_.tokens)};
  StepSpec exact_spec = cut;
  exact_spec.model.precision = {};
  apply_precision(cut.model, spec.precision);
  std::string key = key_of(exact_spec, spec.seed);
  if (key != exact_key_) {
    exact_key_.clear();
    exact_.reset();  // not two at a time
    exact_ = std::make_unique<CutModel>(make_reference_, exact_spec, spec.seed);
    exact_key_ = std::move(key);
  }
  const CutModel model(make_device, cut, spec.seed);
  Distance loss, logits, gradients;
  loss.add(model.output("loss"), exact_->output("loss"));
  logits.add(model.output("logits"), exact_->output("logits"));
  for (const Output& o : exact_->outputs()) {
    if (o.name.starts_with("grad.")) gradients.add(model.output(o.name), exact_->output(o.name));
  }
  return StepError{cut.model.layers, loss.relative(), logits.relative(), gradients.relative()};
}

namespace {

// A cell beside the one in fp32 that it is compared with; nullptr: there is none that ran.
struct StepRow {
  const PrecisionCell& cell;
  const CellResult* base;

  const CellResult& r() const { return cell.result; }
  const StepSpec& step() const { return r().spec.step; }
  bool ok() const { return r().status == "ok"; }
  bool has_base() const { return ok() && base != nullptr; }
};

const CellResult* in_fp32(std::span<const PrecisionCell> cells, const CellResult& of) {
  for (const PrecisionCell& cell : cells) {
    const CellResult& r = cell.result;
    const StepSpec &s = r.spec.step, &t = of.spec.step;
    if (r.spec.precision == "fp32" && r.status == "ok" && s.model.name == t.model.name &&
        s.shape.context == t.shape.context && s.shape.batch == t.shape.batch && s.mode == t.mode &&
        s.ops == t.ops && s.attention == t.attention) {
      return &r;
    }
  }
  return nullptr;
}

using R = const StepRow&;

Fields<StepError> error_fields() {
  return {
      {real_column("loss_error", "loss error", "", -1, "relative, against float64"),
       &StepError::loss},
      {real_column("logits_error", "logits", "", -1, "relative, of norms"), &StepError::logits},
      {real_column("gradient_error", "gradients", "", -1, "relative, of the norm of all gradients"),
       &StepError::gradients},
      {int_column("error_layers", "layers", "of the model that errors are of"),
       &StepError::layers}};
}

Fields<StepRow> fields() {
  Fields<StepRow> out = {
      {text_column("size"), [](R s) { return s.step().model.name; }},
      {int_column("context"), [](R s) { return s.step().shape.context; }},
      {text_column("mode"), [](R s) { return name_of(s.step().mode); }},
      {text_column("precision"), [](R s) { return s.r().spec.precision; }},
      {text_column("ops"), [](R s) { return name_of(s.step().ops); }},
      {text_column("attention"), [](R s) { return name_of(s.step().attention); }},
      {text_column("status"), [](R s) { return s.r().status; }},
      {real_column("median_ms", "median", "ms", 3),
       [](R s) { return when(s.ok(), median_of(s.r().samples_ms)); }},
      {real_column("std_ms", "std", "ms", 3),
       [](R s) { return when(s.ok(), sample_std_of(s.r().samples_ms)); }},
      {real_column("speedup", "against fp32", "x", 2, "fp32's median over this one"),
       [](R s) {
         if (!s.has_base()) return Json();
         return Json(median_of(s.base->samples_ms) / median_of(s.r().samples_ms));
       }},
      {bytes_column("peak_bytes", "peak"), [](R s) { return when(s.ok(), s.r().peak_bytes); }},
      {real_column("peak_ratio", "against fp32", "x", 3), [](R s) {
         if (!s.has_base()) return Json();
         return Json(static_cast<double>(s.r().peak_bytes) /
                     static_cast<double>(s.base->peak_bytes));
       }}};
  return out.add(error_fields(), [](R s) { return s.cell.error ? &*s.cell.error : nullptr; });
}

}  // namespace

Table precision_step_table(std::span<const PrecisionCell> cells) {
  std::vector<StepRow> rows;
  for (const PrecisionCell& cell : cells) rows.push_back({cell, in_fp32(cells, cell.result)});
  Table table =
      table_of("steps", "A step in each precision: time, memory and error", fields(), rows);
  table.notes = {
      "errors: the same weights and tokens in float64 by the reference; one sequence, and no more "
      "layers than the column says, since the reference is slow. Infinite errors are empty",
      "times are of plain steps, never of recorded ones"};
  return table;
}

}  // namespace tracestep
