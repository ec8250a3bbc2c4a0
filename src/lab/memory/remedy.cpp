#include "lab/memory/remedy.h"

#include "base/shell_words.h"
#include "base/units.h"
#include "lab/memory/fit.h"
#include "spec/fields.h"
#include "train/train_fields.h"

namespace tracestep {

bool is_within(const StepFigures& figures, std::int64_t bytes) {
  return figures.peak_bytes > 0 && figures.peak_bytes <= bytes;
}

bool may_fit(const Remedy& remedy, std::int64_t bytes) {
  constexpr double kArenaError = 1.01;
  return static_cast<double>(remedy.figures.peak_bytes) <= kArenaError * static_cast<double>(bytes);
}

RunSpec repeated_part(const Remedy& remedy) {
  RunSpec out = remedy.step;
  if (remedy.micro_batches == 1) return out;
  out.mode = Mode::kForwardBackward;
  out.gradients = GradientKind::kAccumulate;
  out.shape.batch /= remedy.micro_batches;
  return out;
}

namespace {

std::string accumulate_flag() {
  const auto fields = train_fields();
  return std::ranges::find(fields, "accumulate", &TrainField::name)->flag;
}

}  // namespace

std::string command_of(const Remedy& remedy) {
  if (remedy.micro_batches == 1) return command_of(remedy.step);
  RunSpec part = remedy.step;
  part.shape.batch /= remedy.micro_batches;
  return fmt::format("tracestep train --text FILE --accumulate {} {}", remedy.micro_batches,
                     flags_of(part, {"mode"}));
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
    if (from == to) continue;
    r.changes.emplace_back(field.name, to);
    r.what += fmt::format("{}{} {} → {}", r.what.empty() ? "" : ", ", field.name, from, to);
    r.command += fmt::format("{}{} {}", r.command.empty() ? "" : " ", field.flag, shell_quoted(to));
  }
  if (r.micro_batches == 1) return;
  r.changes.emplace_back("accumulate", std::to_string(r.micro_batches));
  r.what += fmt::format(", in {} micro-batches", r.micro_batches);
  r.command += fmt::format(" {} {}", accumulate_flag(), r.micro_batches);
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

// What is tried, behind the first answer as soon as there is one.
void Judge::say(const Remedy& tried) const {
  if (!q_.progress) return;
  const std::string trying = "trying " + tried.command;
  q_.progress(!first_ ? trying
                      : fmt::format("{} fits ({}); {}", first_->command,
                                    format_bytes(first_->figures.peak_bytes), trying),
              share_);
}

void Judge::sketch(Remedy& r) {
  describe(r);
  say(r);
  take_figures(r, figures_.sketch(r.step, r.micro_batches));
}

void Judge::look_at(Remedy& r) {
  say(r);
  take_figures(r, figures_.exact(r.step, r.micro_batches));
  if (r.severity == ChangeSeverity::kOtherTask || r.figures.peak_bytes == 0) return;
  if (!least_ || r.figures.peak_bytes < least_->figures.peak_bytes) least_ = r;
}

}  // namespace tracestep
