#include "lab/memory/remedy.h"

#include "base/shell_words.h"
#include "base/units.h"
#include "spec/fields.h"

namespace tracestep {

bool is_within(const StepFigures& figures, std::int64_t bytes) {
  return figures.peak_bytes > 0 && figures.peak_bytes <= bytes;
}

bool may_fit(const Remedy& remedy, std::int64_t bytes) {
  constexpr double kArenaError = 1.01;
  return static_cast<double>(remedy.figures.peak_bytes) <= kArenaError * static_cast<double>(bytes);
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
  for (const RunField& field : run_fields()) {
    const std::string from = text_of(field, q_.step), to = text_of(field, r.step);
    if (from == to) continue;
    r.changes.emplace_back(field.name, to);
    r.what += fmt::format("{}{} {} → {}", r.what.empty() ? "" : ", ", field.name, from, to);
    r.command += fmt::format("{}{} {}", r.command.empty() ? "" : " ", field.flag, shell_quoted(to));
  }
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
  take_figures(r, figures_.sketch(r.step));
}

void Judge::look_at(Remedy& r) {
  say(r);
  take_figures(r, figures_.exact(r.step));
  if (r.severity == ChangeSeverity::kOtherTask || r.figures.peak_bytes == 0) return;
  if (!least_ || r.figures.peak_bytes < least_->figures.peak_bytes) least_ = r;
}

}  // namespace tracestep
