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
#include "lab/report/columns.h"
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

Table precision_step_table(std::span<const PrecisionCell> cells) {
  Table table{.name = "steps", .title = "A step in each precision: time, memory and error"};
  table.columns = {
      text_column("size"),
      int_column("context"),
      text_column("mode"),
      text_column("precision"),
      text_column("ops"),
      text_column("attention"),
      text_column("status"),
      real_column("median_ms", "median", "ms", 3),
      real_column("std_ms", "std", "ms", 3),
      real_column("speedup", "against fp32", "x", 2, "fp32's median over this one"),
      bytes_column("peak_bytes", "peak"),
      real_column("peak_ratio", "against fp32", "x", 3),
      real_column("loss_error", "loss error", "", -1, "relative, against float64"),
      real_column("logits_error", "logits", "", -1, "relative, of norms"),
      real_column("gradient_error", "gradients", "", -1, "relative, of the norm of all gradients"),
      int_column("error_layers", "layers", "of the model that errors are of")};
  const auto same = [](const CellResult& a, const CellResult& b) {
    const StepSpec &s = a.spec.step, &t = b.spec.step;
    return s.model.name == t.model.name && s.shape.context == t.shape.context &&
           s.shape.batch == t.shape.batch && s.mode == t.mode && s.ops == t.ops &&
           s.attention == t.attention;
  };
  for (const PrecisionCell& cell : cells) {
    const CellResult& r = cell.result;
    const StepSpec& s = r.spec.step;
    const bool ok = r.status == "ok";
    const auto base = std::ranges::find_if(cells, [&](const PrecisionCell& c) {
      return c.result.spec.precision == "fp32" && c.result.status == "ok" && same(c.result, r);
    });
    const bool has_base = ok && base != cells.end();
    const double median = median_of(r.samples_ms);
    const auto peak = static_cast<double>(r.peak_bytes);
    const auto error = [&](double StepError::*member) {
      return cell.error ? Json((*cell.error).*member) : Json();
    };
    table.add_row({s.model.name, s.shape.context, name_of(s.mode), r.spec.precision, name_of(s.ops),
                   name_of(s.attention), r.status, ok ? Json(median) : Json(),
                   ok ? Json(sample_std_of(r.samples_ms)) : Json(),
                   has_base ? Json(median_of(base->result.samples_ms) / median) : Json(),
                   ok ? Json(r.peak_bytes) : Json(),
                   has_base ? Json(peak / static_cast<double>(base->result.peak_bytes)) : Json(),
                   error(&StepError::loss), error(&StepError::logits), error(&StepError::gradients),
                   cell.error ? Json(cell.error->layers) : Json()});
  }
  table.notes = {
      "errors: the same weights and tokens in float64 by the reference; one sequence, and no more "
      "layers than the column says, since the reference is slow. Infinite errors are empty",
      "times are of plain steps, never of recorded ones"};
  return table;
}

}  // namespace tracestep
