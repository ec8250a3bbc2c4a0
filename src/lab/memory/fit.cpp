#include "lab/memory/fit.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "analysis/cost.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/shell_words.h"
#include "base/units.h"
#include "exec/executor.h"
#include "lab/report/fields.h"
#include "spec/fields.h"
#include "spec/run_grid.h"

namespace tracestep {
namespace {

constexpr std::int64_t kContextUnit = 64;                  // odd lengths are slow
constexpr std::int64_t kMostSize = std::int64_t{1} << 20;  // of a batch and a context (spec/fields)

struct Fit {
  const MemoryCell& cell;
  const FitQuestion& question;
  const std::optional<Prediction>& time;

  const RunSpec& step() const { return cell.run.spec.step; }
  std::int64_t peak() const { return cell.run.predicted_peak_bytes; }
  std::int64_t spare() const { return question.limit_bytes - peak(); }
  double tokens_per_s() const {
    return 1e3 * static_cast<double>(step().shape.batch * step().shape.context) / time->time.ms;
  }
};

// The largest size of one kind of step.
struct Largest {
  std::string what = {};
  std::optional<RunSpec> step = {};  // none: nothing fits
  std::int64_t size = 0, peak_bytes = 0;
  bool is_capped = false;  // the search ended before the memory did
};

// None: no choice of what to recompute fits.
std::optional<std::int64_t> peak_of(const RunSpec& step, const DeviceTraits& traits) {
  try {
    check_run(step);
    return predicted_peak_bytes(step.executor, step_program(step, traits), traits);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage) throw;
    return std::nullopt;
  }
}

class Finder {
 public:
  Finder(DeviceTraits traits, std::int64_t limit, Growth growth, const ModelConfig& model)
      : traits_(traits),
        limit_(limit),
        growth_(growth),
        positions_(model.positions == Positions::kLearned ? model.max_positions : kMostSize) {}

  Largest find(std::string what, const RunSpec& step) const {
    Largest out{.what = std::move(what)};
    std::int64_t start = 0;
    if (step.recompute.kind == Recomputation::Kind::kBudget) {
      // Whole blocks are one of the choices, and quickly predicted.
      RunSpec blocks = step;
      blocks.recompute = parse_recomputation("recompute", "blocks");
      Largest ignored;
      start = largest_units(blocks, 0, ignored);
      // A budget of its own may be smaller than the limit.
      if (start > 0 && !tries(step, start, out)) start = 0;
    }
    out.is_capped = largest_units(step, start, out) == most_units();
    return out;
  }

 private:
  // From a size that fits on, in steps that double; then halves the interval: peaks grow with it.
  std::int64_t largest_units(const RunSpec& step, std::int64_t fits, Largest& out) const {
    std::int64_t stride = 1;
    while (fits + stride <= most_units() && tries(step, fits + stride, out)) {
      fits += stride;
      stride *= 2;
    }
    std::int64_t fails = std::min(fits + stride, most_units() + 1);
    while (fails - fits > 1) {
      const std::int64_t middle = fits + (fails - fits) / 2;
      (tries(step, middle, out) ? fits : fails) = middle;
    }
    return fits;
  }

  // Where commands end, or the model's positions.
  std::int64_t most_units() const {
    return growth_ == Growth::kBatch ? kMostSize : ceil_div(most_context(), kContextUnit);
  }
  std::int64_t most_context() const { return std::min(kMostSize, positions_); }

  bool tries(const RunSpec& step, std::int64_t units, Largest& out) const {
    RunSpec grown = step;
    const bool is_batch = growth_ == Growth::kBatch;
    (is_batch ? grown.shape.batch : grown.shape.context) =
        is_batch ? units : std::min(units * kContextUnit, most_context());
    const std::optional<std::int64_t> peak = peak_of(grown, traits_);
    if (!peak || *peak > limit_) return false;
    out.size = is_batch ? grown.shape.batch : grown.shape.context;
    out.peak_bytes = *peak;
    out.step = std::move(grown);
    return true;
  }

  DeviceTraits traits_;
  std::int64_t limit_;
  Growth growth_;
  std::int64_t positions_;  // the longest context that the model takes
};

struct Variant {
  std::string what = {};
  RunSpec step;
};

// The step as asked for, and with what keeps its task.
std::vector<Variant> changes_of(const RunSpec& step, std::int64_t limit) {
  std::vector<Variant> out{{"as asked for", step}};
  const auto add = [&](const std::string& what, RunSpec next) {
    const bool is_new =
        std::ranges::none_of(out, [&](const Variant& c) { return key_of(c.step) == key_of(next); });
    if (is_new) out.push_back({what, std::move(next)});
  };
  RunSpec flash = step, again = step;
  flash.attention = AttentionForm::kFlash;
  add("flash attention", flash);
  if (step.mode == Mode::kInference) return out;
  const Recomputation budget{.kind = Recomputation::Kind::kBudget, .budget_bytes = limit};
  again.recompute = budget;
  add("recomputation", again);
  flash.recompute = budget;
  add("flash attention, recomputation", flash);
  if (step.precision == Precision()) {
    flash.precision = {.autocast = DType::kBF16};
    add("flash attention, recomputation, bf16", flash);
  }
  return out;
}

}  // namespace

std::optional<RunSpec> at_largest_context(RunSpec step, const DeviceTraits& traits,
                                          std::int64_t limit_bytes) {
  std::optional<RunSpec> out;
  for (std::int64_t tokens = kContextUnit; tokens <= kMostSize; tokens *= 2) {
    step.shape.context = tokens;
    const std::optional<std::int64_t> peak = peak_of(step, traits);
    if (!peak || *peak > limit_bytes) break;
    out = step;
  }
  return out;
}

std::string_view name_of(Growth growth) {
  return growth == Growth::kBatch ? "batch" : "context";
}

std::string flags_of(const RunSpec& step) {
  std::string out;
  const bool is_on_gpu = step.place.device.starts_with("cuda");
  for (const RunField& field : run_fields()) {
    const bool is_custom = step.model.name == "custom";
    const bool is_size = is_own_size(field);
    const bool is_preset = field.name == "size";
    const bool counts = field.name == "device" || (field.name == "threads" && !is_on_gpu);
    const bool is_said = is_size || is_preset || field.name == "context" || field.name == "batch" ||
                         field.name == "mode";
    const bool comes_with_preset = is_size || is_of_architecture(field);
    const bool is_else = is_custom ? is_preset : comes_with_preset;
    if ((field.role == FieldRole::kPlace && !counts) || is_else) continue;
    if (!is_said && field.value(step) == field.value(RunSpec())) continue;
    if (!out.empty()) out += ' ';
    out += fmt::format("{} {}", field.flag, shell_quoted(text_of(field, step)));
  }
  return out;
}

std::string command_of(const RunSpec& step) {
  return "tracestep bench " + flags_of(step);
}

FitVerdict fit_verdict(std::int64_t peak_bytes, const FitQuestion& question) {
  if (peak_bytes > question.limit_bytes) return FitVerdict::kDoesNotFit;
  return peak_bytes > question.within_bytes() ? FitVerdict::kTight : FitVerdict::kFits;
}

Table fit_table(const MemoryCell& cell, const FitQuestion& question) {
  using F = const Fit&;
  const auto status_of = [](F f) {
    switch (fit_verdict(f.peak(), f.question)) {
      case FitVerdict::kFits: return "ok";
      case FitVerdict::kTight: return "tight";
      case FitVerdict::kDoesNotFit: return "oom";
    }
    return "?";
  };
  Column status =
      without_run(text_column("status", {}, "ok; tight: it leaves less than the margin; or oom"));
  status.words.emplace_back("tight", "fits tightly");
  Fields<Fit> fields = {
      {as_key(text_column("step")), [](F f) { return label_of(f.cell); }},
      {status, status_of},
      {bytes_column("peak_bytes", "predicted peak"), &Fit::peak},
      {bytes_column("limit_bytes", "limit"), [](F f) { return f.question.limit_bytes; }},
      {bytes_column("spare_bytes", "to spare", "empty: it does not fit"),
       [](F f) { return when(f.spare() >= 0, f.spare()); }},
      {bytes_column("missing_bytes", "missing"),
       [](F f) { return when(f.spare() < 0, -f.spare()); }}};
  if (const std::int64_t on_host = host_bytes(cell.run.program); on_host > 0) {
    fields.add(bytes_column("host_bytes", "in host memory"), [on_host](F) { return on_host; });
  }
  std::optional<Prediction> time;
  if (const Predictor* times = question.times) {
    time = predict_program(cell.run.spec.step, cell.run.program, cell.run.traits, *times);
    fields.add(real_column("predicted_ms", "predicted time", "ms", -1, "of a step"),
               [](F f) { return f.time->time.ms; });
    fields.add(real_column("tokens_per_s", "tokens/s", "", 0, "at that time"), &Fit::tokens_per_s);
  }
  fields.add(text_column("command"), [](F f) { return command_of(f.step()); });
  Table table = table_of("fit", "Does it fit?", fields, std::vector<Fit>{{cell, question, time}});
  if (time && question.times->model.is_measured()) {
    table.notes.push_back(fmt::format("nine of ten such steps take {} to {}",
                                      format_duration_ms(time->time.low_ms),
                                      format_duration_ms(time->time.high_ms)));
    if (const std::string note = correction_note({&*time, 1}); !note.empty()) {
      table.notes.push_back("times are " + note);
    }
  }
  return table;
}

Table largest_table(const RunSpec& step, const DeviceTraits& traits, std::int64_t limit_bytes,
                    Growth growth, const Predictor* times) {
  using L = const Largest&;
  const std::string size = std::string(name_of(growth));
  Fields<Largest> fields = {
      {text_column("change"), &Largest::what},
      {int_column(size, "largest " + size), [](L l) { return when(l.step.has_value(), l.size); }},
      {bytes_column("peak_bytes", "predicted peak"),
       [](L l) { return when(l.step.has_value(), l.peak_bytes); }}};
  add_times<Largest>(fields, traits, times, [](L l) { return l.step ? &*l.step : nullptr; });
  fields.add(text_column("command"),
             [](L l) { return l.step ? Json(command_of(*l.step)) : Json(); });
  const Finder finder(traits, limit_bytes, growth, step.model);
  std::vector<Largest> rows;
  for (const Variant& change : changes_of(step, limit_bytes)) {
    rows.push_back(finder.find(change.what, change.step));
  }
  const std::string unit =
      growth == Growth::kContext ? fmt::format(", in steps of {}", kContextUnit) : "";
  Table table = table_of(
      "largest", fmt::format("The largest {} in {}{}", size, format_bytes(limit_bytes), unit),
      fields, rows);
  if (step.loss_chunks == 0) {
    table.notes.push_back(
        fmt::format("a search ends at the first {} that does not fit; as the loss of larger ones "
                    "is computed in more parts, a larger one may fit",
                    size));
  }
  for (const Largest& row : rows) {
    if (!row.is_capped) continue;
    const std::string_view most = row.size < kMostSize ? "all that the model has positions for"
                                                       : "the most that commands take";
    table.notes.push_back(
        fmt::format("{}: more than {} would fit, which is {}", row.what, row.size, most));
  }
  return table;
}

}  // namespace tracestep
