// Settles runs of captured modules, where the module decides what flags decide elsewhere.
#include "base/error.h"
#include "captured/captured_model.h"
#include "planning/device_traits.h"
#include "spec/run_grid.h"

namespace tracestep {
namespace {

void refuse_sizes(const RunGrid& grid, const CapturedModel& model) {
  for (const RunField& field : run_fields()) {
    const bool is_size = field.group == FieldGroup::kModel && !is_captured(field);
    if (!is_size || !grid.is_given(field.name)) continue;
    throw Error(
        ErrorCode::kUsage, field.where(),
        fmt::format("{} is a module of its own program, which has all of its sizes", model.name),
        "leave it out, or leave out " TRACESTEP_OPTION(program));
  }
}

void refuse_shape(const CapturedModel& model, const char* name, std::int64_t asked,
                  std::int64_t own) {
  if (asked == own) return;
  throw Error(ErrorCode::kUsage, {About::Kind::kField, name},
              fmt::format("{} was captured with {} {}, and another one is another program",
                          model.name, name, own),
              fmt::format("capture it with inputs of {} {}: tracestep.capture(module, *inputs, "
                          "folder=\"{}\")",
                          name, asked, model.folder.string()));
}

// The precision in which parameters have the module's dtype and nothing is cast.
Precision own_precision(const CapturedModel& model) {
  Precision out;
  out.parameters = model.weights;
  return out;
}

}  // namespace

void check_captured_shape(const RunSpec& run) {
  if (run.model.captured == nullptr) return;
  const CapturedModel& model = *run.model.captured;
  const std::int64_t replicas = run.parallel.replicas();
  if (run.shape.batch % replicas != 0) {
    fail_usage("batch"_field, "{} replicas have {} sequences each; {} is no multiple", replicas,
               model.batch, run.shape.batch);
  }
  refuse_shape(model, "batch", run.shape.batch / replicas, model.batch);
  refuse_shape(model, "context", run.shape.context, model.context);
}

void settle_captured(const RunGrid& grid, RunSpec& run) {
  const CapturedModel& model = *run.model.captured;
  refuse_sizes(grid, model);
  if (run.parallel.tensor > 1) {
    fail_usage("parallel"_field, "tp divides models by the names of their parts; {} has its own",
               model.name);
  }
  if (model.is_float64 && !traits_named(run.place.device).computes_in_float64()) {
    throw Error(ErrorCode::kUsage, "program"_field,
                fmt::format("the parameters of {} are float64, which the device reference computes "
                            "with; {} is of float32 and of 16 bits",
                            model.name, run.place.device),
                "capture module.float()");
  }
  const std::int64_t batch = model.batch * run.parallel.replicas();
  if (!grid.is_given("batch")) run.shape.batch = batch;
  if (!grid.is_given("context")) run.shape.context = model.context;
  check_captured_shape(run);
  const bool is_own = run.precision.parameters == model.weights;
  if (!is_own && !grid.is_given("precision")) run.precision = own_precision(model);
}

}  // namespace tracestep
