#include "lab/fit/remedy.h"

#include <string>

#include "base/shell_words.h"
#include "base/units.h"
#include "captured/captured_model.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"
#include "spec/fields.h"
#include "spec/planned.h"
#include "spec/run_flags.h"

namespace tracestep {

std::string flags_of(const RunSpec& step, const std::set<std::string>& left_out) {
  std::string out;
  const bool is_on_gpu = traits_named(step.place.device).has_own_memory();
  for (const RunField& field : run_fields()) {
    const bool is_custom = step.model.name == "custom";
    const bool is_size = is_own_size(field);
    const bool is_preset = field.name == "size";
    const bool counts = field.name == "device" || (field.name == "threads" && !is_on_gpu);
    // A plan for a GPU has defaults of its own.
    const bool is_said = is_size || is_preset || (is_shape(field) && !field.is_optional) ||
                         field.name == "mode" || (is_on_gpu && is_planned(field));
    const bool comes_with_preset = is_size || is_of_architecture(field);
    const bool is_else = is_custom ? is_preset : comes_with_preset;
    const bool applies = !field.applies || field.applies(step);
    const bool is_of_other =
        step.model.captured != nullptr && is_preset;  // its folder is the model
    if (!applies || is_of_other) continue;
    if ((field.role == FieldRole::kPlace && !counts && !is_captured(field)) || is_else) continue;
    if (left_out.contains(std::string(field.name))) continue;
    if (!is_said && field.value(step) == field.value(RunSpec())) continue;
    if (!out.empty()) out += ' ';
    const std::string text = text_of(field, step);
    out += fmt::format("{} {}", flag_for(field, {&text, 1}), shell_quoted(text));
  }
  return out;
}

std::string command_of(const RunSpec& step) {
  return "tracestep bench " + flags_of(step);
}

Fields<RunSpec> task_fields() {
  using R = const RunSpec&;
  return {{data_only(col::batch("as asked for")), [](R r) { return r.shape.batch; }},
          {data_only(col::context("as asked for")), [](R r) { return r.shape.context; }},
          {data_only(col::precision("as asked for")), [](R r) { return name_of(r.precision); }}};
}

bool is_within(const StepFigures& figures, std::int64_t bytes) {
  return figures.peak_bytes > 0 && figures.peak_bytes <= bytes;
}

constexpr double kArenaError = 1.01;

bool may_fit(std::int64_t sketched_peak, std::int64_t bytes) {
  return static_cast<double>(sketched_peak) <= kArenaError * static_cast<double>(bytes);
}

bool surely_fits(std::int64_t sketched_peak, std::int64_t bytes) {
  return kArenaError * static_cast<double>(sketched_peak) <= static_cast<double>(bytes);
}

RunSpec repeated_part(const Remedy& remedy) {
  RunSpec out = remedy.step;
  if (remedy.micro_batches == 1) return out;
  out.mode = Mode::kForwardBackward;
  out.gradients = GradientKind::kAccumulate;
  out.shape.batch /= remedy.micro_batches;
  out.accumulate = 1;
  return out;
}

namespace {

constexpr std::string_view kAccumulate = "accumulate";

// Returns how many micro-batches the remedy's step has, with those that were asked for.
std::int64_t all_micro_batches(const Remedy& r) {
  return r.step.accumulate * r.micro_batches;
}

}  // namespace

std::string command_of(const Remedy& remedy) {
  if (remedy.micro_batches == 1) return command_of(remedy.step);
  RunSpec part = remedy.step;
  part.shape.batch /= remedy.micro_batches;
  return fmt::format("tracestep train --text FILE --accumulate {} {}", all_micro_batches(remedy),
                     flags_of(part, {"mode", std::string(kAccumulate)}));
}

Judge::Judge(const FitQuestion& question)
    : q_(question),
      figures_(q_.traits, q_.times),
      asked_(q_.asked ? *q_.asked : figures_.exact(q_.step)) {
  if (asked_.peak_bytes > 0) return;
  RunSpec kept = q_.step;  // its own budget is not met
  kept.recompute = {};
  asked_ = figures_.sketch(kept);
}

void Judge::describe(Remedy& r) const {
  r.changes.clear();
  r.what.clear();
  r.command.clear();
  RunSpec part = r.step;
  part.shape.batch /= r.micro_batches;
  for (const RunField& field : run_fields()) {
    const std::string from = text_of(field, q_.step), to = text_of(field, part);
    if (from == to || field.name == kAccumulate) continue;
    r.changes.emplace_back(field.name, to);
    r.what += fmt::format("{}{} {} → {}", r.what.empty() ? "" : ", ", field.name, from, to);
    r.command += fmt::format("{}{} {}", r.command.empty() ? "" : " ", field.flag, shell_quoted(to));
  }
  if (r.micro_batches == 1) return;
  const std::int64_t all = all_micro_batches(r);
  r.changes.emplace_back(kAccumulate, std::to_string(all));
  r.what += fmt::format(", in {} micro-batches", all);
  r.command += fmt::format(" {} {}", field_named(kAccumulate).flag, all);
}

void Judge::take_figures(Remedy& r, const StepFigures& figures) const {
  r.figures = figures;
  const double tokens = static_cast<double>(r.step.shape.batch * r.step.shape.context) /
                        static_cast<double>(q_.step.shape.batch * q_.step.shape.context);
  r.flops_ratio = figures.flops / asked_.flops / tokens;
  r.moved_ratio = figures.moved_bytes / asked_.moved_bytes / tokens;
  r.kernels_ratio = figures.kernels / asked_.kernels / tokens;
  r.time_ratio = figures.ms / asked_.ms / tokens;
}

// Reports progress: the first remedy that fits, once one is known, and the one being tried.
void Judge::say(const Remedy& tried) const {
  if (!q_.progress) return;
  const std::string trying = "trying " + tried.command;
  q_.progress(!first_ ? trying
                      : fmt::format("{} fits ({}); {}", first_->command,
                                    format_bytes(first_->figures.peak_bytes), trying),
              sets_);
}

void Judge::sketch(Remedy& r) {
  describe(r);
  say(r);
  take_figures(r, figures_.sketch(r.step, r.micro_batches));
}

std::optional<std::int64_t> Judge::nested_peak(Remedy& r) {
  describe(r);
  say(r);
  return r.micro_batches == 1 ? figures_.nested_peak(r.step) : std::nullopt;
}

void Judge::look_at(Remedy& r) {
  say(r);
  take_figures(r, figures_.exact(r.step, r.micro_batches));
  const bool has_peak = r.figures.peak_bytes > 0 && r.figures.refusal == nullptr;
  if (r.severity == ChangeSeverity::kOtherTask || !has_peak) return;
  if (!least_ || r.figures.peak_bytes < least_->figures.peak_bytes) least_ = r;
}

namespace {

template <class T>
Choices one(ChangeSeverity severity, T RunSpec::*field, T value) {
  return {{severity, [=](RunSpec& step) { step.*field = value; }}};
}

StepChange recomputes(const Recomputation& choice) {
  return {ChangeSeverity::kSameNumbers, [=](RunSpec& step) { step.recompute = choice; }};
}

// Returns the names of a block's parts, first those whose recomputation costs least.
std::vector<std::string> parts_of_blocks(const ModelConfig& model) {
  if (model.captured != nullptr) return model.captured->block_parts;
  return {std::string(scope::kFeedForward), std::string(scope::kAttention)};
}

// Adds choices that recompute blocks, with feed-forwards in chunks, with the blocks' inputs in the
// host's memory, or both: without recomputation neither saves memory.
void add_with_blocks(const RunSpec& step, const DeviceTraits& traits, Choices& out) {
  using enum ChangeSeverity;
  const bool may_cut = step.ffn_chunks == 1 && step.model.captured == nullptr;
  const bool may_move =
      step.mode == Mode::kStep && traits.has_own_memory() && !has_activations(step.offload);
  const auto add = [&](bool cuts, bool moves) {
    out.push_back({cuts ? kOtherRoundings : kSameNumbers, [=](RunSpec& s) {
                     if (!is_of_blocks(s.recompute)) s.recompute = Recomputation::blocks();
                     if (cuts) s.ffn_chunks = 0;
                     if (moves) s.offload = offload_of(has_optimizer(s.offload), true);
                   }});
  };
  if (may_move) add(false, true);
  if (may_cut) add(true, false);
  if (may_cut && may_move) add(true, true);
}

// Returns the recomputations that a step may change to, first those that cost least.
Choices recomputations(const RunSpec& step, const DeviceTraits& traits) {
  using Kind = Recomputation::Kind;
  const Recomputation& now = step.recompute;
  if (step.mode == Mode::kInference || now.kind == Kind::kNested) return {};
  const bool has_blocks = is_of_blocks(now);
  Choices out;
  if (now.kind != Kind::kParts) {
    for (const std::string& part : parts_of_blocks(step.model)) {
      out.push_back(recomputes(Recomputation::parts({fmt::format("{}.{}", kBlocks, part)})));
    }
  }
  if (!has_blocks) out.push_back(recomputes(Recomputation::blocks()));
  // Larger groups hold more than the blocks' inputs that they save.
  for (const int every : {2, 4}) {
    const bool is_new = !has_blocks || every > now.every;
    if (is_new && 2 * every <= step.model.layers) {
      out.push_back(recomputes(Recomputation::blocks(every)));
    }
  }
  add_with_blocks(step, traits, out);
  return out;
}

Choices narrower_moments(const RunSpec& step) {
  Choices out;
  const auto add = [&](ChangeSeverity severity, Moments moments) {
    if (step.optimizer.moments >= moments) return;
    out.push_back({severity, [=](RunSpec& s) { s.optimizer.moments = moments; }});
  };
  add(ChangeSeverity::kOtherStates, Moments::kBF16);
  const bool may_code =
      step.parallel.updates_whole_tensors() && step.optimizer.kind != OptimizerKind::kMuon;
  if (may_code) add(ChangeSeverity::kCodedStates, Moments::k8Bit);
  return out;
}

}  // namespace

bool is_pure(const Precision& precision) {
  return precision.parameters != DType::kF32;
}

bool is_of_blocks(const Recomputation& choice) {
  return choice.kind == Recomputation::Kind::kParts &&
         choice.paths == std::vector<std::string>{std::string(kBlocks)};
}

bool has_budget(const RunSpec& step) {
  return step.recompute.kind == Recomputation::Kind::kBudget;
}

void offload_optimizer(RunSpec& step) {
  step.offload = offload_of(true, has_activations(step.offload));
}

std::vector<Choices> choices_of(const RunSpec& step, const DeviceTraits& traits) {
  using enum ChangeSeverity;
  const bool is_step = step.mode == Mode::kStep;
  std::vector<Choices> out;
  if (is_step && step.updates != UpdateTime::kEarly) {
    out.push_back(one(kSameNumbers, &RunSpec::updates, UpdateTime::kEarly));
  }
  out.push_back(recomputations(step, traits));
  if (is_step && traits.has_own_memory() && !has_optimizer(step.offload)) {
    out.push_back({{kSameNumbers, offload_optimizer}});
  }
  if (step.ops != Granularity::kFused) {
    out.push_back(one(kOtherRoundings, &RunSpec::ops, Granularity(Granularity::kFused)));
  }
  if (step.attention != AttentionForm::kFlash) {
    out.push_back(one(kOtherRoundings, &RunSpec::attention, AttentionForm::kFlash));
  }
  if (step.mode != Mode::kInference && step.loss_chunks == 1) {
    out.push_back(one(kOtherRoundings, &RunSpec::loss_chunks, std::int64_t{0}));
  }
  if (!step.precision.autocast && !is_pure(step.precision)) {
    out.push_back(one(kOtherPrecision, &RunSpec::precision, Precision{.autocast = DType::kBF16}));
  }
  if (is_step) out.push_back(narrower_moments(step));
  const bool may_sum_low = is_step && step.accumulate > 1 && step.precision.autocast &&
                           step.grad_accum_dtype == GradientSums::kF32 && !step.parallel.is_on();
  if (may_sum_low) {
    out.push_back(one(kOtherPrecision, &RunSpec::grad_accum_dtype, GradientSums::kLow));
  }
  return out;
}

}  // namespace tracestep
