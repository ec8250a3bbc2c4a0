// Steps in each precision: time, peak and error side by side.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/half.h"
#include "captured/captured_model.h"
#include "ir/print.h"
#include "lab/measure/comparison.h"
#include "lab/measure/processes.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/measure/validity.h"
#include "lab/precision/tables.h"
#include "lab/report/digits.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "passes/pipeline.h"
#include "session/session.h"
#include "train/step_inputs.h"
#include "weights/captured_tensors.h"
#include "weights/model_store.h"

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
    default: fail_usage("precision"_field, "{} is not floating", name_of(x.dtype));
  }
  return out;
}

// Sums the squares of differences and of exact values, for a relative error; values that are not
// finite make the error infinite.
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

// Returns a key of everything on which the float64 result of a step depends.
std::string error_key_of(const RunSpec& spec) {
  return fmt::format("{}\n{}", spec.seed, print(loss_program(spec, {.with_logits = true})));
}

// True unless the model is a captured module, from which nothing can be cut, that takes the float64
// reference too long or has no logits.
bool can_be_compared(const ModelConfig& model) {
  constexpr double kMostFlops = 5e9;
  if (model.captured == nullptr) return true;
  return forward_flops(*model.captured) <= kMostFlops &&
         model.captured->program.find_output(kLogitsOutput) != kNoValue;
}

}  // namespace

// Loss, logits and gradients of the cut model on one device. The executor stays alive for reading.
class StepErrors::CutModel {
 public:
  CutModel(const DeviceFactory& make_device, const RunSpec& spec)
      : device_(make_device(spec)),
        session_(*device_, spec,
                 program_for(loss_program(spec, {.with_logits = true}), spec, *device_)) {
    initialize_parameters(session_.store(), spec.seed);
    load_captured_constants(WholeTensors(session_.store()), spec);
    set_step_inputs(session_.executor(), spec);
    session_.executor().run();
    device_->synchronize();
  }
  HostTensor output(std::string_view name) { return session_.executor().output(name); }
  const std::vector<Output>& outputs() const { return session_.program().outputs; }

 private:
  std::unique_ptr<Device> device_;
  Session session_;
};

StepErrors::StepErrors(DeviceFactory make_reference, const ErrorSpec& error)
    : make_reference_(std::move(make_reference)), error_(error) {}
StepErrors::~StepErrors() = default;

std::optional<StepError> StepErrors::of(const DeviceFactory& make_device, const RunSpec& step) {
  if (error_.layers == 0 || !can_be_compared(step.model)) return std::nullopt;
  RunSpec cut = step;
  cut.mode = Mode::kForwardBackward;
  cut.gradients = GradientKind::kTransient;
  if (step.model.captured == nullptr) {
    cut.model.layers = std::min(cut.model.layers, error_.layers);
    cut.shape = {.batch = 1, .context = std::min(cut.shape.context, error_.tokens)};
  }
  RunSpec exact_spec = cut;
  exact_spec.precision = {};
  exact_spec.executor = ExecutorKind::kEager;
  exact_spec.compile_passes = {};
  std::string key = error_key_of(exact_spec);
  if (key != exact_key_) {
    exact_key_.clear();
    exact_.reset();  // not two at a time
    exact_ = std::make_unique<CutModel>(make_reference_, exact_spec);
    exact_key_ = std::move(key);
  }
  CutModel model(make_device, cut);
  Distance loss, logits, gradients;
  loss.add(model.output("loss"), exact_->output("loss"));
  logits.add(model.output("logits"), exact_->output("logits"));
  for (const Output& o : exact_->outputs()) {
    if (o.name.starts_with("grad.")) gradients.add(model.output(o.name), exact_->output(o.name));
  }
  return StepError{cut.model.layers, loss.relative(), logits.relative(), gradients.relative()};
}

namespace {

// A cell and the cell in fp32 that it is compared with; nullptr: there is none that ran.
struct StepRow {
  const PrecisionCell& cell;
  const CellResult* base;

  const CellResult& r() const { return cell.result; }
  const RunSpec& step() const { return r().spec.step; }
  bool ok() const { return r().status == Status::kOk; }
  std::optional<TimedSamples> samples() const {
    return ok() ? std::optional(timed_samples(r())) : std::nullopt;
  }
  bool has_base() const { return ok() && base != nullptr; }
  bool is_compared() const { return has_base() && base != &r(); }
  Comparison beside_base() const {
    return compare_cells(timed_samples(*base), timed_samples(r()), 0.02);
  }
};

using R = const StepRow&;

std::optional<double> energy_of(R s) {
  return s.ok() ? energy_per_step_j(s.r()) : std::nullopt;
}

Fields<StepError> error_fields() {
  return {{as_exact(col::loss_error), &StepError::loss},
          {as_exact(real_column("logits_error", "logits", "", -1, "relative, of norms")),
           &StepError::logits}};
}

// The columns of the gradients' error (empty without gradients) and of how many layers it is of.
Fields<StepRow> gradient_fields() {
  return {{as_exact(col::gradient_error),
           [](R s) {
             const bool has_some = s.cell.error && s.step().mode >= Mode::kForwardBackward;
             return has_some ? finite_or_null(s.cell.error->gradients) : Json();
           }},
          {col::error_layers.titled("layers"),
           [](R s) { return s.cell.error ? Json(s.cell.error->layers) : Json(); }}};
}

Fields<StepRow> step_row_fields() {
  Fields<StepRow> out{};
  out.add(axis_columns(), [](R s) { return &s.step(); });
  out.add({{col::status, [](R s) { return name_of(s.r().status); }},
           {col::median_ms, [](R s) { return when(s.ok(), median_of(s.r().samples_ms)); }},
           {col::std_ms,
            [](R s) { return when(s.ok(), finite_or_null(sample_std_of(s.r().samples_ms))); }},
           {data_only(as_samples(col::samples_ms("wall time of each timed step"))),
            [](R s) { return when(s.ok(), list_of(s.r().samples_ms)); }},
           {visits_field("samples_ms"), [](R s) { return visit_counts(timed_samples(s.r())); }}});
  out.add(interval_fields(), [](R s) { return s.samples(); });
  out.add(
      {{with_digits(2, col::speedup.titled("speed-up", "fp32's median over this one")),
        [](R s) {
          if (!s.has_base()) return Json();
          return Json(median_of(s.base->samples_ms) / median_of(s.r().samples_ms));
        }},
       {as_comparison(
            col::is("beside fp32, by these samples: faster or slower beyond chance, slightly "
                    "where that is within 2 % (5 % of cells measured in rounds), same within "
                    "it, unclear, or too few samples")),
        [](R s) { return s.is_compared() ? Json(fine_words_of(s.beside_base())) : Json(); }},
       {timed(col::p("two-sided, of these and fp32's times: Mann-Whitney, of rounds Wilcoxon")),
        [](R s) { return s.is_compared() ? finite_or_null(s.beside_base().p) : Json(); }},
       {timed(real_column("energy_j", "energy", "J", kTwoDigits,
                          "of the whole device, for one step, by its own coarse counter; empty "
                          "where it has none, where the samples of all visits are less than half "
                          "a second, or where it says more than the power limit allows")),
        [](R s) { return or_null(energy_of(s)); }},
       {as_exact(col::peak_bytes), [](R s) { return when(s.ok(), s.r().peak_bytes); }},
       {real_column("peak_ratio", "peak over fp32's", "x", 3), [](R s) {
          if (!s.has_base()) return Json();
          return Json(static_cast<double>(s.r().peak_bytes) /
                      static_cast<double>(s.base->peak_bytes));
        }}});
  out.add(error_fields(), [](R s) { return s.cell.error; });
  out.add(gradient_fields());
  return out.add(verdict_column(), [](R) { return Json(); });
}

}  // namespace

const CellResult* in_fp32(std::span<const PrecisionCell> cells, const CellResult& of) {
  for (const PrecisionCell& cell : cells) {
    const CellResult& r = cell.result;
    const RunSpec& step = r.spec.step;
    if (step.precision == Precision() && r.status == Status::kOk &&
        same_but(step, of.spec.step, {"precision"})) {
      return &r;
    }
  }
  return nullptr;
}

Table precision_step_table(std::span<const PrecisionCell> cells) {
  std::vector<StepRow> rows;
  for (const PrecisionCell& cell : cells) rows.push_back({cell, in_fp32(cells, cell.result)});
  Table table = table_of("steps", "Passes in each precision: time, memory and error",
                         step_row_fields(), rows);
  show_unusual(table);
  const auto has_energy = [](const StepRow& s) { return energy_of(s).has_value(); };
  for (Column& c : table.columns)
    if (c.name == "energy_j") c.data_only = std::ranges::none_of(rows, has_energy);
  table.notes = {
      "errors: the same weights and tokens in float64 by the reference, of one sequence and of as "
      "many layers as are named here, since the reference is slow. Infinite errors are empty",
      "times are of plain steps, never of recorded ones"};
  std::vector<ResultRow> judged;
  for (const PrecisionCell& cell : cells) {
    judged.push_back(ResultRow::of(cell_columns(), cell_row(cell.result), Json::object()));
  }
  add_verdicts(table, judged);
  return table;
}

}  // namespace tracestep
