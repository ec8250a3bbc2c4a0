#include "lab/fit/finer_recomputation.h"

#include <algorithm>
#include <utility>

namespace tracestep {
namespace {

// To find the choice for a budget takes many plans of the program.
constexpr double kMostKernels = 2500, kMostKernelsOfLastResort = 400;

// Rounds down to whole MiB or KiB, as people would write a budget.
std::int64_t round_budget(std::int64_t bytes) {
  constexpr std::int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
  const std::int64_t unit = bytes >= kGiB ? kMiB : bytes >= kMiB ? kKiB : 1;
  return bytes / unit * unit;
}

Recomputation budget_of(const FitQuestion& q) {
  return {.kind = Recomputation::Kind::kBudget, .budget_bytes = round_budget(q.within_bytes())};
}

// A budget is for the peak of one program, not for what others keep besides.
bool takes_budget(const Judge& judge, const Remedy& r, double most_kernels) {
  return r.step.mode != Mode::kInference && r.micro_batches == 1 &&
         judge.asked().kernels <= most_kernels;
}

Remedy with_recomputation(Judge& judge, Remedy r, const Recomputation& choice) {
  r.step.recompute = choice;
  judge.describe(r);
  return r;
}

}  // namespace

std::vector<Remedy> finer_recomputations(Judge& judge, const Remedy& least) {
  const FitQuestion& q = judge.question();
  std::vector<Remedy> out;
  if (least.figures.kept_bytes > q.within_bytes() || least.step.mode == Mode::kInference)
    return out;
  std::vector<Recomputation> choices{Recomputation::nested()};
  if (takes_budget(judge, least, kMostKernelsOfLastResort)) choices.push_back(budget_of(q));
  for (const Recomputation& choice : choices) {
    Remedy r = with_recomputation(judge, least, choice);
    judge.look_at(r);
    if (is_within(r.figures, q.within_bytes())) out.push_back(std::move(r));
  }
  std::ranges::sort(out, {}, [](const Remedy& r) { return r.figures.ms; });
  return out;
}

std::optional<Remedy> chosen_by_node(Judge& judge, const Remedy& r) {
  const FitQuestion& q = judge.question();
  const bool recomputes = r.step.recompute != q.step.recompute || has_budget(q.step);
  if (!recomputes || !takes_budget(judge, r, kMostKernels)) return std::nullopt;
  Remedy out = with_recomputation(judge, r, budget_of(q));
  if (out.changes.empty()) return std::nullopt;
  judge.look_at(out);
  const bool is_faster = out.figures.ms * (1 + kAlike) <= r.figures.ms;
  const bool is_better = is_faster || has_budget(q.step);
  return is_better && is_within(out.figures, q.within_bytes()) ? std::optional(out) : std::nullopt;
}

}  // namespace tracestep
