#include "lab/memory/change_sets.h"

#include <numeric>
#include <tuple>

namespace tracestep {
namespace {

constexpr double kGuessError = 1.25;  // of a time that was guessed

// Those that no faster one beats that is at most as severe, keeps no more, holds no more besides,
// at least 1 MiB less in all, and leaves as much to divide; the fastest first. Changes shrink
// what is kept and the rest apart, and peaks that are nearly alike may change places.
template <class Parts>
std::vector<Remedy> unbeaten(std::vector<Remedy> all, const Parts& parts) {
  constexpr std::int64_t kClearly = 1 << 20;
  std::ranges::stable_sort(all, {}, [](const Remedy& r) { return r.figures.ms; });
  std::vector<Remedy> out;
  for (Remedy& r : all) {
    const bool is_beaten = std::ranges::any_of(out, [&](const Remedy& other) {
      const StepFigures &a = other.figures, &b = r.figures;
      return a.peak_bytes + kClearly <= b.peak_bytes && a.kept_bytes <= b.kept_bytes &&
             a.peak_bytes - a.kept_bytes <= b.peak_bytes - b.kept_bytes &&
             other.severity <= r.severity && parts(other) >= parts(r);
    });
    if (!is_beaten) out.push_back(std::move(r));
  }
  return out;
}

std::vector<Remedy> unbeaten(std::vector<Remedy> all) {
  return unbeaten(std::move(all), [](const Remedy&) { return 1; });
}

}  // namespace

bool ChangeSet::is_slower_than(double ms) const {
  return guessed_ms() > kGuessError * ms;
}

void sort_by_guess(std::vector<ChangeSet>& sets) {
  std::ranges::stable_sort(sets, {}, [](const ChangeSet& set) {
    return std::tuple(set.guessed_ms(), set.remedy.changes.size());
  });
}

ChangeSets::ChangeSets(Judge& judge)
    : q_(judge.question()),
      judge_(judge),
      ways_(unbeaten(shared(), [this](const Remedy& r) { return most_parts(r); })),
      whole_(unbeaten(ways_)) {
  find_choices();
}

// The step as asked, or each way in which ranks may share it.
std::vector<Remedy> ChangeSets::shared() const {
  Remedy asked{.step = q_.step};
  if (has_budget(q_.step)) asked.step.recompute = {};  // a budget is tried at last
  Remedies out;
  for (const Parallel& parallel : q_.parallels) out.emplace_back(asked).step.parallel = parallel;
  if (q_.parallels.empty()) out.push_back(asked);
  for (Remedy& way : out) judge_.sketch(way);
  return out;
}

void ChangeSets::find_choices() {
  // One that every choice is for, if there is such.
  const auto is_whole = [](const Remedy& r) { return r.step.parallel.updates_whole_tensors(); };
  const auto found = std::ranges::find_if(whole_, is_whole);
  const Remedy& first = found == whole_.end() ? whole_.front() : *found;
  choices_ = choices_of(first.step, q_.traits);
  for (const Choices& each : choices_) {
    time_ratios_.emplace_back();
    for (const StepChange& change : each) {
      RunSpec alone = first.step;
      change.apply(alone);
      // Groups of blocks take hardly longer than single ones, and more layers to tell.
      if (alone.recompute.every > 1) alone.recompute = Recomputation::blocks();
      time_ratios_.back().push_back(judge_.figures().sketch(alone).ms / first.figures.ms);
    }
  }
}

std::vector<ChangeSet> ChangeSets::changed(const Remedies& ways) const {
  std::vector<ChangeSet> out;
  for (const Remedy& way : ways) out.push_back({way, way.figures.ms});
  for (std::size_t field = 0; field < choices_.size(); ++field) {
    const std::size_t before = out.size();
    for (std::size_t c = 0; c < choices_[field].size(); ++c) {
      for (std::size_t i = 0; i < before; ++i) {
        ChangeSet next = out[i];
        next.apply(choices_[field][c], time_ratios_[field][c]);
        // Updates wait for the gradients of all micro-batches.
        const bool is_early = next.remedy.step.updates != q_.step.updates;
        if (is_early && next.remedy.micro_batches > 1) continue;
        const RunSpec& step = next.remedy.step;
        const bool is_coded = step.optimizer.moments == Moments::k8Bit;
        if (is_coded && !step.parallel.updates_whole_tensors()) continue;
        out.push_back(std::move(next));
      }
    }
  }
  for (ChangeSet& set : out) judge_.describe(set.remedy);
  return out;
}

// Into how many parts, a power of two, its batch can go, of which each replica has whole
// sequences.
std::int64_t ChangeSets::most_parts(const Remedy& way) const {
  if (q_.division == BatchDivision::kNever || way.step.mode != Mode::kStep) return 1;
  const std::int64_t units =
      way.step.shape.batch / way.step.parallel.replicas() / least_sequences(way.step);
  return units & -units;
}

std::vector<ChangeSet> ChangeSets::divided(double most_ms) const {
  // Divided, a step takes longer: as many operations, and weights read again for each part.
  double less = 1;
  for (const std::vector<double>& ratios : time_ratios_) {
    if (!ratios.empty()) less *= std::min(1.0, std::ranges::min(ratios));
  }
  const auto is_too_slow = [&](const Remedy& way) {
    return ChangeSet{way, way.figures.ms, less}.is_slower_than(most_ms);
  };
  Remedies all = ways_;
  for (const Remedy& way : ways_) {
    if (surely_fits(way.figures.peak_bytes, q_.within_bytes())) continue;
    Remedy next = way;
    next.severity = ChangeSeverity::kOtherRoundings;
    for (std::int64_t parts = 2; parts <= most_parts(way) && !is_too_slow(next); parts *= 2) {
      next.micro_batches = parts;
      judge_.sketch(next);
      all.push_back(next);
    }
  }
  all = unbeaten(std::move(all));
  std::erase_if(all, [](const Remedy& way) { return way.micro_batches == 1; });
  return changed(all);
}

}  // namespace tracestep
