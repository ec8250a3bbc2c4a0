#include "lab/memory/change_sets.h"

#include <tuple>

namespace tracestep {
namespace {

class Maker {
 public:
  explicit Maker(Judge& judge) : q_(judge.question()), judge_(judge) {}

  std::vector<ChangeSet> all() {
    std::vector<ChangeSet> starts = starting_points();
    const ChangeSet& first = *std::ranges::find(
        starts, 1, [](const ChangeSet& set) { return set.remedy.micro_batches; });
    const std::vector<Choices> choices = choices_of(first.remedy.step, q_.traits);
    std::vector<std::vector<double>> time_ratios;
    for (const Choices& each : choices) {
      time_ratios.emplace_back();
      for (const StepChange& change : each) {
        RunSpec alone = first.remedy.step;
        change.apply(alone);
        // Groups of blocks take hardly longer than single ones, and more layers to tell.
        if (alone.recompute.every > 1) alone.recompute = Recomputation::blocks();
        time_ratios.back().push_back(sketched_ms(alone) / first.start_ms);
      }
    }
    std::vector<ChangeSet> out = std::move(starts);
    for (std::size_t field = 0; field < choices.size(); ++field) {
      const std::size_t before = out.size();
      for (std::size_t c = 0; c < choices[field].size(); ++c) {
        for (std::size_t i = 0; i < before; ++i) {
          ChangeSet next = out[i];
          next.apply(choices[field][c], time_ratios[field][c]);
          // Updates wait for the gradients of all micro-batches.
          const bool is_early = next.remedy.step.updates != q_.step.updates;
          if (is_early && next.remedy.micro_batches > 1) continue;
          out.push_back(std::move(next));
        }
      }
    }
    for (ChangeSet& set : out) judge_.describe(set.remedy);
    std::ranges::stable_sort(out, {}, [](const ChangeSet& set) {
      return std::tuple(set.guessed_ms(), set.remedy.changes.size());
    });
    return out;
  }

 private:
  using Remedies = std::vector<Remedy>;

  double sketched_ms(const RunSpec& step) { return judge_.figures().sketch(step).ms; }

  // The step as asked, or shared by ranks, whole and in micro-batches: each way that no other one
  // beats in time and bytes.
  std::vector<ChangeSet> starting_points() {
    Remedy asked{.step = q_.step};
    if (has_budget(q_.step)) asked.step.recompute = {};  // a budget is tried at last
    if (q_.parallels.empty() && !q_.has_micro_batches) return {{asked, sketched_ms(asked.step)}};
    Remedies ways;
    for (const Parallel& parallel : q_.parallels) ways.emplace_back(asked).step.parallel = parallel;
    if (q_.parallels.empty()) ways.push_back(asked);
    for (Remedy& way : ways) judge_.sketch(way);
    ways = unbeaten(std::move(ways), [this](const Remedy& r) { return most_parts(r); });
    if (q_.has_micro_batches) {
      // Divided, a step takes longer: as many operations, and weights read again for each part.
      for (const Remedy& way : Remedies(ways)) {
        const bool fits = surely_fits(way.figures.peak_bytes, q_.within_bytes());
        if (!fits) add_divided(way, ways);
      }
      ways = unbeaten(std::move(ways), [](const Remedy&) { return 1; });
    }
    std::vector<ChangeSet> out;
    for (const Remedy& way : ways) out.push_back({way, way.figures.ms});
    return out;
  }

  // Into how many parts, a power of two, its batch can go, of which each replica has whole
  // sequences.
  std::int64_t most_parts(const Remedy& way) const {
    if (!q_.has_micro_batches) return 1;
    const std::int64_t units =
        way.step.shape.batch / way.step.parallel.replicas() / least_sequences(way.step);
    return units & -units;
  }

  // Adds the way with its batch in 2, 4, 8, … parts.
  void add_divided(const Remedy& way, Remedies& out) {
    for (std::int64_t parts = 2; parts <= most_parts(way); parts *= 2) {
      Remedy& next = out.emplace_back(way);
      next.micro_batches = parts;
      next.severity = ChangeSeverity::kOtherRoundings;
      judge_.sketch(next);
    }
  }

  // Those that no faster one beats that is at most as severe, keeps no more, holds no more besides,
  // at least 1 MiB less in all, and leaves as much to divide; the fastest first. Changes shrink
  // what is kept and the rest apart, and peaks that are nearly alike may change places.
  template <class Parts>
  static Remedies unbeaten(Remedies all, const Parts& parts) {
    constexpr std::int64_t kClearly = 1 << 20;
    std::ranges::stable_sort(all, {}, [](const Remedy& r) { return r.figures.ms; });
    Remedies out;
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

  const FitQuestion& q_;
  Judge& judge_;
};

}  // namespace

std::vector<ChangeSet> change_sets(Judge& judge) {
  return Maker(judge).all();
}

}  // namespace tracestep
