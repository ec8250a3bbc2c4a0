#include "lab/memory/search.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace tracestep {
namespace {

constexpr std::size_t kMostOfASeverity = 3;  // remedies

constexpr ChangeSeverity kOfTheTask[] = {
    ChangeSeverity::kSameNumbers, ChangeSeverity::kOtherRoundings, ChangeSeverity::kOtherPrecision,
    ChangeSeverity::kOtherStates};

// In words that people would write, and no more than `bytes`.
std::int64_t round_budget(std::int64_t bytes) {
  constexpr std::int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
  const std::int64_t unit = bytes >= kGiB ? kMiB : bytes >= kMiB ? kKiB : 1;
  return bytes / unit * unit;
}

class Search {
 public:
  explicit Search(const FitQuestion& q) : q_(q), judge_(q) {}

  Advice run() {
    add_sets();
    for (const ChangeSeverity s : kOfTheTask) take_from(s);
    if (advice_.remedies.empty() && !q_.is_of_task_alone) {
      find_least();
      advice_.remedies = of_another_task(judge_, bases());
    }
    if (advice_.tight && !is_better_than_remedies(*advice_.tight)) advice_.tight.reset();
    return std::move(advice_);
  }

 private:
  using Remedies = std::vector<Remedy>;

  // --- sets of changes of the same task ---------------------------------------------------------

  // A set of changes, before its program and after. Its time is guessed as if changes knew nothing
  // of each other: what saves time saves its share, what costs time costs as much as alone.
  struct Set {
    Remedy remedy;
    double start_ms = 0, less = 1, more = 1;
    bool is_sketched = false;

    double guessed_ms() const { return start_ms * less * more; }
    void apply(const StepChange& change, double time_ratio) {
      change.apply(remedy.step);
      remedy.severity = std::max(remedy.severity, change.severity);
      less *= std::min(1.0, time_ratio);
      more += std::max(0.0, time_ratio - 1);
    }
  };

  double sketched_ms(const RunSpec& step) { return judge_.figures().sketch(step).ms; }

  void add_sets() {
    std::vector<Set> starts = starting_points();
    const Set& first =
        *std::ranges::find(starts, 1, [](const Set& set) { return set.remedy.micro_batches; });
    const std::vector<Choices> choices = choices_of(first.remedy.step, q_.traits);
    std::vector<std::vector<double>> time_ratios;
    for (const Choices& each : choices) {
      time_ratios.emplace_back();
      for (const StepChange& change : each) {
        RunSpec alone = first.remedy.step;
        change.apply(alone);
        time_ratios.back().push_back(sketched_ms(alone) / first.start_ms);
      }
    }
    sets_ = std::move(starts);
    for (std::size_t field = 0; field < choices.size(); ++field) {
      const std::size_t before = sets_.size();
      for (std::size_t c = 0; c < choices[field].size(); ++c) {
        for (std::size_t i = 0; i < before; ++i) {
          Set next = sets_[i];
          next.apply(choices[field][c], time_ratios[field][c]);
          // Updates wait for the gradients of all micro-batches.
          const bool is_early = next.remedy.step.updates != q_.step.updates;
          if (is_early && next.remedy.micro_batches > 1) continue;
          sets_.push_back(std::move(next));
        }
      }
    }
    for (Set& set : sets_) judge_.describe(set.remedy);
    std::ranges::stable_sort(sets_, {}, [](const Set& set) {
      return std::tuple(set.guessed_ms(), set.remedy.changes.size());
    });
  }

  // The step as asked, or shared by ranks, whole and in micro-batches: each way that no other one
  // beats in time and bytes.
  std::vector<Set> starting_points() {
    Remedy asked{.step = q_.step};
    if (has_budget(q_.step)) asked.step.recompute = {};  // a budget is tried at last
    if (q_.parallels.empty() && !q_.has_micro_batches) return {{asked, sketched_ms(asked.step)}};
    Remedies ways;
    for (const Parallel& parallel : q_.parallels) ways.emplace_back(asked).step.parallel = parallel;
    if (q_.parallels.empty()) ways.push_back(asked);
    for (Remedy& way : ways) judge_.sketch(way);
    ways = unbeaten(std::move(ways), [this](const Remedy& r) { return most_parts(r); });
    if (q_.has_micro_batches) {
      for (const Remedy& way : Remedies(ways)) add_divided(way, ways);
      ways = unbeaten(std::move(ways), [](const Remedy&) { return 1; });
    }
    std::vector<Set> out;
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

  // Weights and states in the device's memory, which no recomputation and no form of a kernel
  // changes: a lower bound on the peak.
  std::int64_t kept_bytes(const Remedy& remedy) {
    RunSpec step = remedy.step;
    step.recompute = {};
    step.attention = q_.step.attention;
    step.loss_chunks = q_.step.loss_chunks;
    step.ops = q_.step.ops;
    return judge_.figures().sketch(step, remedy.micro_batches).kept_bytes;
  }

  void sketch(Set& set) {
    if (set.is_sketched) return;
    judge_.reach(static_cast<double>(sketched_++) / static_cast<double>(sets_.size()));
    judge_.sketch(set.remedy);
    set.is_sketched = true;
  }

  // Sets of one severity with figures from few layers, the fastest first. Of those that take longer
  // than `most_ms`, or much longer than one that seems to fit, some are left out.
  std::vector<Remedy*> sketched(ChangeSeverity severity, double most_ms) {
    constexpr double kGuessError = 1.25;
    std::vector<Remedy*> out;
    for (Set& set : sets_) {
      if (set.remedy.severity != severity || set.remedy.changes.empty()) continue;
      if (set.guessed_ms() > kGuessError * most_ms) break;
      if (kept_bytes(set.remedy) > q_.limit_bytes) continue;
      sketch(set);
      out.push_back(&set.remedy);
      if (surely_fits(set.remedy, q_.within_bytes())) {
        most_ms = std::min(most_ms, set.remedy.figures.ms);
      }
    }
    std::ranges::stable_sort(
        out, {}, [](const Remedy* r) { return std::tuple(r->figures.ms, r->changes.size()); });
    return out;
  }

  // The remedies of one severity.
  void take_from(ChangeSeverity severity) {
    constexpr double kNoTime = std::numeric_limits<double>::infinity();
    double fastest = kNoTime;
    for (const Remedy& r : advice_.remedies) fastest = std::min(fastest, r.figures.ms);
    Remedies found = fitting(sketched(severity, fastest), fastest);
    if (found.empty() && fastest == kNoTime) found = last_resort(severity);
    if (found.empty()) return;
    const bool is_first = advice_.remedies.empty();
    const std::size_t at = advice_.remedies.size();
    std::ranges::copy(found, std::back_inserter(advice_.remedies));
    if (is_first) judge_.answer(found.front());
    if (std::optional<Remedy> finer = refined(found.front())) {
      advice_.remedies.insert(advice_.remedies.begin() + static_cast<std::ptrdiff_t>(at), *finer);
    }
    if (is_first) add_roomiest();
  }

  // Those that fit by their whole programs: the fastest, and slower ones that hold much less.
  Remedies fitting(const std::vector<Remedy*>& sets, double fastest) {
    Remedies out;
    for (Remedy* r : sets) {
      if (out.size() == kMostOfASeverity || r->figures.ms * (1 + kAlike) > fastest) break;
      if (!out.empty() && !holds_much_less(*r, out.back())) continue;
      if (!may_fit(*r, advice_.tight ? q_.within_bytes() : q_.limit_bytes)) continue;
      judge_.look_at(*r);
      if (is_within(r->figures, q_.within_bytes())) {
        out.push_back(out.empty() ? simplest_like(*r, sets) : *r);
      } else if (is_within(r->figures, q_.limit_bytes) && !advice_.tight) {
        advice_.tight = *r;
      }
    }
    return out;
  }

  static bool holds_much_less(const Remedy& r, const Remedy& other) {
    constexpr double kMuchLess = 0.85;
    return static_cast<double>(r.figures.peak_bytes) <=
           kMuchLess * static_cast<double>(other.figures.peak_bytes);
  }

  // Of the sets that fit and take about as long, the one with the fewest changes.
  Remedy simplest_like(const Remedy& r, const std::vector<Remedy*>& sets) {
    Remedy out = r;
    for (Remedy* other : sets) {
      const bool is_alike = other->figures.ms <= r.figures.ms * (1 + kAlike);
      if (!is_alike || other->changes.size() >= out.changes.size()) continue;
      if (!may_fit(*other, q_.within_bytes())) continue;
      judge_.look_at(*other);
      if (is_within(other->figures, q_.within_bytes())) out = *other;
    }
    return out;
  }

  // The set with the least peak, where it is not much slower: for other programs, or a larger
  // batch.
  void add_roomiest() {
    constexpr double kNotMuchSlower = 1.5;
    const Remedy first = advice_.remedies.front();
    const Remedy* least = least_of(
        [&](const Remedy& r) { return r.severity == first.severity && !r.changes.empty(); });
    if (!holds_much_less(*least, advice_.remedies.back())) return;
    if (least->figures.ms > kNotMuchSlower * first.figures.ms) return;
    Remedy roomiest = *least;
    judge_.look_at(roomiest);
    advice_.remedies.push_back(std::move(roomiest));
  }

  // What computes again more than once, or, of small steps, less than whole parts: of the set with
  // the least peak.
  Remedies last_resort(ChangeSeverity severity) {
    const Remedy* least =
        least_of([&](const Remedy& r) { return r.severity == severity && !r.changes.empty(); });
    if (least == nullptr || least->figures.kept_bytes > q_.within_bytes()) return {};
    Remedies out;
    for (const Recomputation& choice : {Recomputation::nested(), budget()}) {
      if (!takes_recomputation(*least, choice, 400)) continue;
      Remedy r = *least;
      r.step.recompute = choice;
      judge_.describe(r);
      judge_.look_at(r);
      if (is_within(r.figures, q_.within_bytes())) out.push_back(std::move(r));
    }
    std::ranges::sort(out, {}, [](const Remedy& r) { return r.figures.ms; });
    return out;
  }

  // What is computed again chosen node by node, where that takes less time than whole parts.
  std::optional<Remedy> refined(const Remedy& r) {
    const bool recomputes = r.step.recompute != q_.step.recompute || has_budget(q_.step);
    if (!recomputes || !takes_recomputation(r, budget(), 2500)) return std::nullopt;
    Remedy finer = r;
    finer.step.recompute = budget();
    judge_.describe(finer);
    if (finer.changes.empty()) return std::nullopt;
    judge_.look_at(finer);
    const bool is_faster = finer.figures.ms * (1 + kAlike) <= r.figures.ms;
    const bool is_better = is_faster || has_budget(q_.step);
    return is_better && is_within(finer.figures, q_.within_bytes()) ? std::optional(finer)
                                                                    : std::nullopt;
  }

  Recomputation budget() const {
    return {.kind = Recomputation::Kind::kBudget, .budget_bytes = round_budget(q_.within_bytes())};
  }

  // To find the choice for a budget takes many plans of the program; and it is for the peak of one
  // program, not for what others keep besides.
  bool takes_recomputation(const Remedy& r, const Recomputation& choice,
                           double most_kernels) const {
    if (r.step.mode == Mode::kInference) return false;
    if (choice.kind != Recomputation::Kind::kBudget) return true;
    return r.micro_batches == 1 && judge_.asked().kernels <= most_kernels;
  }

  // By few layers; nullptr: there is none.
  template <class Is>
  const Remedy* least_of(const Is& is) {
    const Remedy* out = nullptr;
    for (Set& set : sets_) {
      if (!is(set.remedy)) continue;
      if (out != nullptr && kept_bytes(set.remedy) >= out->figures.peak_bytes) continue;
      sketch(set);
      const Remedy& r = set.remedy;
      if (out == nullptr || r.figures.peak_bytes < out->figures.peak_bytes) out = &r;
    }
    return out;
  }

  // A severer remedy is worth showing, and one that leaves little.
  bool is_better_than_remedies(const Remedy& r) const {
    return std::ranges::none_of(advice_.remedies, [&](const Remedy& other) {
      return other.severity <= r.severity && other.figures.ms <= r.figures.ms * (1 + kAlike);
    });
  }

  void find_least() {
    Remedy least = *least_of([](const Remedy&) { return true; });
    judge_.look_at(least);
    advice_.least = *judge_.least();
    advice_.least_sequence = with_batch(judge_, *judge_.least(), 1);
    judge_.look_at(*advice_.least_sequence);
  }

  // The step as asked, and of every severity the set with the least peak.
  Remedies bases() {
    Remedies out;
    for (const ChangeSeverity most : kOfTheTask) {
      for (const bool is_asked : {true, false}) {
        const Remedy* base = least_of(
            [&](const Remedy& r) { return is_asked ? r.changes.empty() : r.severity <= most; });
        const bool is_new = base != nullptr && std::ranges::none_of(out, [&](const Remedy& o) {
                              return o.command == base->command;
                            });
        if (is_new) out.push_back(*base);
      }
    }
    return out;
  }

  const FitQuestion& q_;
  Judge judge_;
  std::vector<Set> sets_;
  std::size_t sketched_ = 0;  // of them
  Advice advice_;
};

}  // namespace

Advice advise(const FitQuestion& question) {
  return Search(question).run();
}

}  // namespace tracestep
