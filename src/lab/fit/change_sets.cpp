#include "lab/fit/change_sets.h"

#include <functional>
#include <tuple>

namespace tracestep {
namespace {

constexpr double kGuessError = 1.25;  // of a time that was guessed

// True if both have micro-batches, equally many, and equal figures, as some ZeRO stages have.
bool is_same(const Remedy& a, const Remedy& b) {
  return a.micro_batches > 1 && a.micro_batches == b.micro_batches &&
         a.figures.ms == b.figures.ms && a.figures.peak_bytes == b.figures.peak_bytes &&
         a.figures.kept_bytes == b.figures.kept_bytes;
}

// Interpolates the figures of a step in `parts` micro-batches from those in two and in the most:
// each micro-batch adds a fixed time, and holds fixed bytes besides those of its sequences.
Remedy in_parts(const Remedy& two, const Remedy& most, std::int64_t parts) {
  if (parts == 2) return two;
  const auto n = static_cast<double>(parts), last = static_cast<double>(most.micro_batches);
  const auto more_bytes = static_cast<double>(most.figures.peak_bytes - two.figures.peak_bytes);
  Remedy out = two;
  out.micro_batches = parts;
  out.figures.ms += (most.figures.ms - two.figures.ms) * (n - 2) / (last - 2);
  out.figures.peak_bytes +=
      static_cast<std::int64_t>(more_bytes * (1.0 / 2 - 1 / n) / (1.0 / 2 - 1 / last));
  return out;
}

// Drops each remedy that a faster one equals or beats, and sorts by time. One beats another with at
// most its severity, at most its bytes of weights and states and of all others (changes shrink the
// two apart), a peak at least 1 MiB lower, and a batch that divides into as many parts.
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
    if (std::ranges::any_of(out, [&](const Remedy& other) { return is_same(other, r); })) continue;
    if (!is_beaten) out.push_back(std::move(r));
  }
  return out;
}

std::vector<Remedy> unbeaten(std::vector<Remedy> all) {
  return unbeaten(std::move(all), [](const Remedy&) { return 1; });
}

}  // namespace

double ChangeSet::guessed_ms() const {
  double less = 1, more = 1;
  for (const double ratio : ratios) {
    less *= std::min(1.0, ratio);
    more += std::max(0.0, ratio - 1);
  }
  return start_ms * less * more;
}

bool ChangeSet::is_no_better_than(const ChangeSet& other) const {
  const RunSpec &a = remedy.step, &b = other.remedy.step;
  const bool is_alike = a.parallel == b.parallel && a.updates == b.updates && a.ops == b.ops &&
                        a.attention == b.attention && a.precision == b.precision &&
                        a.optimizer.moments == b.optimizer.moments;
  return is_alike && remedy.micro_batches >= other.remedy.micro_batches &&
         remedy.changes.size() >= other.remedy.changes.size() &&
         std::ranges::equal(ratios, other.ratios, std::greater_equal{});
}

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

// Returns the step as asked, once for each way to share it among ranks that is not refused.
std::vector<Remedy> ChangeSets::shared() {
  Remedy asked{.step = q_.step};
  if (has_budget(q_.step)) asked.step.recompute = {};  // a budget is tried at last
  Remedies out;
  for (const Parallel& parallel : q_.parallels) out.emplace_back(asked).step.parallel = parallel;
  if (q_.parallels.empty()) out.push_back(asked);
  for (Remedy& way : out) judge_.sketch(way);
  const auto refused = [](const Remedy& way) { return way.figures.refusal != nullptr; };
  if (std::ranges::all_of(out, refused)) refusal_ = out.front().figures.refusal;
  std::erase_if(out, refused);
  return out;
}

void ChangeSets::find_choices() {
  if (whole_.empty()) return;
  // Prefer a way that updates whole tensors: every change applies to it.
  const auto is_whole = [](const Remedy& r) { return r.step.parallel.updates_whole_tensors(); };
  const auto found = std::ranges::find_if(whole_, is_whole);
  const Remedy& first = found == whole_.end() ? whole_.front() : *found;
  choices_ = choices_of(first.step, q_.traits);
  for (const Choices& each : choices_) {
    time_ratios_.emplace_back();
    for (const StepChange& change : each) {
      RunSpec alone = first.step;
      change.apply(alone);
      // Groups take hardly longer than single blocks, and their figures need more layers.
      if (alone.recompute.every > 1) alone.recompute = Recomputation::blocks();
      time_ratios_.back().push_back(judge_.figures().sketch(alone).ms / first.figures.ms);
    }
  }
}

std::vector<ChangeSet> ChangeSets::changed(const Remedies& ways) const {
  std::vector<ChangeSet> out;
  for (const Remedy& way : ways) {
    out.push_back({way, way.figures.ms, std::vector<double>(choices_.size(), 1.0)});
  }
  for (std::size_t field = 0; field < choices_.size(); ++field) {
    const std::size_t before = out.size();
    for (std::size_t c = 0; c < choices_[field].size(); ++c) {
      for (std::size_t i = 0; i < before; ++i) {
        const StepChange& change = choices_[field][c];
        ChangeSet next = out[i];
        change.apply(next.remedy.step);
        next.remedy.severity = std::max(next.remedy.severity, change.severity);
        next.ratios[field] = time_ratios_[field][c];
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

// The most parts, a power of two, into which the batch can be divided so that each replica has
// whole sequences.
std::int64_t ChangeSets::most_parts(const Remedy& way) const {
  if (q_.division == BatchDivision::kNever || way.step.mode != Mode::kStep) return 1;
  if (way.step.model.captured != nullptr) return 1;  // it has one batch
  const std::int64_t units =
      way.step.shape.batch / way.step.parallel.replicas() / least_sequences(way.step);
  return units & -units;
}

Remedy ChangeSets::sketched_in(const Remedy& way, std::int64_t parts) const {
  Remedy out = way;
  out.micro_batches = parts;
  out.severity = ChangeSeverity::kOtherRoundings;
  judge_.sketch(out);
  return out;
}

std::vector<ChangeSet> ChangeSets::divided(double most_ms) const {
  // With micro-batches, a step takes longer: it has as many operations, and reads the weights again
  // for each. Changes may save at most what each saves alone.
  std::vector<double> savings;
  for (const std::vector<double>& ratios : time_ratios_) {
    if (!ratios.empty()) savings.push_back(std::min(1.0, std::ranges::min(ratios)));
  }
  const auto is_too_slow = [&](const Remedy& way) {
    return ChangeSet{way, way.figures.ms, savings}.is_slower_than(most_ms);
  };
  Remedies all = ways_;
  for (const Remedy& way : ways_) {
    const std::int64_t most = most_parts(way);
    if (most == 1 || surely_fits(way.figures.peak_bytes, q_.within_bytes())) continue;
    if (is_too_slow(way)) continue;
    const Remedy two = sketched_in(way, 2), last = sketched_in(way, most);
    if (two.figures.refusal || last.figures.refusal) continue;
    for (std::int64_t parts = 2; parts <= most; parts *= 2) {
      Remedy next = in_parts(two, last, parts);
      if (is_too_slow(next)) break;
      all.push_back(std::move(next));
    }
  }
  all = unbeaten(std::move(all));
  std::erase_if(all, [](const Remedy& way) { return way.micro_batches == 1; });
  return changed(all);
}

}  // namespace tracestep
