#include "lab/fit/search.h"

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "lab/fit/change_sets.h"
#include "lab/fit/peak_bounds.h"

namespace tracestep {
namespace {

constexpr std::size_t kMostOfASeverity = 3;  // remedies
constexpr double kNoTime = std::numeric_limits<double>::infinity();
constexpr double kMuchLess = 0.85;  // of another's peak

// --- finer choices of what runs again ---

// The most kernels of a step for which a budget is tried: usually, and when no set of changes fits.
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

// True if `r` can have its recomputation chosen by a budget, which plans one program on the device:
// without micro-batches, without activations in the host's memory, in at most `most_kernels`.
bool takes_budget(const Judge& judge, const Remedy& r, double most_kernels) {
  return !has_activations(r.step.offload) && r.step.mode != Mode::kInference &&
         r.micro_batches == 1 && judge.asked().kernels <= most_kernels;
}

Remedy with_recomputation(Judge& judge, Remedy r, const Recomputation& choice) {
  r.step.recompute = choice;
  judge.describe(r);
  return r;
}

// Refines the recomputation of `least`, the set with the least peak, as no set fits: tries nested
// blocks and, for small steps, a budget, which chooses by node. Returns what fits, by time.
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

// Returns set `r`, which fits, with its recomputation chosen node by node by a budget; nullopt if
// it recomputes nothing, if that is not faster, or if the step has too many kernels for it.
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

// --- the search ---
// Searches for advise(): builds the advice severity by severity from the sets of changes.
class Search {
 public:
  explicit Search(const FitQuestion& q) : q_(q), judge_(q), bounds_(judge_), all_sets_(judge_) {}

  Advice run() {
    if (all_sets_.refusal() != nullptr) {
      advice_.refusal = all_sets_.refusal();
      return std::move(advice_);
    }
    add(all_sets_.whole());
    take_from(ChangeSeverity::kSameNumbers);
    if (q_.division == BatchDivision::kFreely) divide();
    take_from(ChangeSeverity::kOtherRoundings);
    if (q_.division == BatchDivision::kIfNeeded && advice_.remedies.empty()) {
      divide();
      take_from(ChangeSeverity::kOtherRoundings);
    }
    take_from(ChangeSeverity::kOtherPrecision);
    take_from(ChangeSeverity::kOtherStates);
    take_from(ChangeSeverity::kCodedStates);
    if (advice_.remedies.empty() && !q_.is_of_task_alone) {
      find_least();
      const bool has_others = q_.step.model.captured == nullptr;
      if (has_others) advice_.remedies = of_another_task(judge_, bases());
    }
    if (advice_.tight && !is_better_than_remedies(*advice_.tight)) advice_.tight.reset();
    return std::move(advice_);
  }

 private:
  using Remedies = std::vector<Remedy>;
  using Set = ChangeSet;

  void add(std::vector<Set> sets) {
    std::ranges::move(sets, std::back_inserter(sets_));
    sort_by_guess(sets_);
  }
  void divide() { add(all_sets_.divided(fastest_ms())); }

  double fastest_ms() const {
    double out = kNoTime;
    for (const Remedy& r : advice_.remedies) out = std::min(out, r.figures.ms);
    return out;
  }

  void sketch(Set& set) {
    if (set.is_sketched) return;
    judge_.reach({weighed_, std::ssize(sets_)});
    judge_.sketch(set.remedy);
    bounds_.learn(set.remedy, set.remedy.figures);
    set.least_ms = set.remedy.figures.ms;
    set.is_sketched = true;
  }

  // Returns the sets of one severity, sketched, the fastest first. Left out are sets that surely do
  // not fit, and those clearly slower than `most_ms` or than a set that surely fits. Sets that are
  // no better than one that surely fits are not sketched yet.
  std::vector<Set*> sketched(ChangeSeverity severity, double most_ms) {
    std::vector<Set*> out, fitting;
    weighed_ =
        std::ranges::count_if(sets_, [&](const Set& s) { return s.remedy.severity < severity; });
    for (Set& set : sets_) {
      if (set.remedy.severity != severity || set.remedy.changes.empty()) continue;
      ++weighed_;
      if (set.is_slower_than(most_ms)) break;
      if (bounds_.kept_bytes(set.remedy) > q_.limit_bytes) continue;
      if (!may_fit(bounds_.least_bytes(set.remedy), q_.limit_bytes)) continue;
      out.push_back(&set);
      if (!set.is_sketched && can_wait(set, fitting)) continue;
      sketch(set);
      if (!surely_fits(set.remedy.figures.peak_bytes, q_.within_bytes())) continue;
      fitting.push_back(&set);
      most_ms = std::min(most_ms, set.remedy.figures.ms);
    }
    sort_by_time(out);
    return out;
  }
  static bool can_wait(Set& set, std::span<Set* const> fitting) {
    bool out = false;
    for (const Set* other : fitting) {
      if (!set.is_no_better_than(*other)) continue;
      out = true;
      set.least_ms = std::max(set.least_ms, other->remedy.figures.ms);
    }
    return out;
  }
  static void sort_by_time(std::span<Set*> sets) {
    std::ranges::stable_sort(sets, {}, [](const Set* set) {
      return std::tuple(set->least_ms, set->remedy.changes.size());
    });
  }

  // Adds the remedies of one severity to the advice.
  void take_from(ChangeSeverity severity) {
    const double fastest = fastest_ms();
    Remedies found = fitting(sketched(severity, fastest), fastest);
    if (found.empty() && fastest == kNoTime) found = last_resort(severity);
    if (found.empty()) return;
    const bool is_first = advice_.remedies.empty();
    const std::size_t at = advice_.remedies.size();
    std::ranges::copy(found, std::back_inserter(advice_.remedies));
    if (is_first) judge_.answer(found.front());
    if (std::optional<Remedy> finer = chosen_by_node(judge_, found.front())) {
      advice_.remedies.insert(advice_.remedies.begin() + static_cast<std::ptrdiff_t>(at), *finer);
    }
    if (is_first) add_roomiest();
  }

  // Finds remedies that fit by whole programs: the fastest, and slower ones that hold much less.
  Remedies fitting(std::vector<Set*> sets, double fastest) {
    Remedies out;
    std::optional<Remedy> tight;
    const auto is_small = [&](std::int64_t peak) {
      return out.empty() || is_much_less(peak, out.back());
    };
    for (std::size_t i = 0; i < sets.size(); ++i) {
      Remedy& r = sets[i]->remedy;
      if (out.size() == kMostOfASeverity || is_slower(*sets[i], fastest)) break;
      if (!sets[i]->is_sketched && is_small(bounds_.least_bytes(r))) {
        sketch(*sets[i]);
        sort_by_time(std::span(sets).subspan(i--));
        continue;
      }
      if (!sets[i]->is_sketched || !is_small(r.figures.peak_bytes)) continue;
      if (!may_fit(r.figures.peak_bytes, q_.within_bytes())) continue;
      judge_.look_at(r);
      if (is_within(r.figures, q_.within_bytes())) {
        out.push_back(out.empty() ? simplest_like(r, sets) : r);
        if (advice_.remedies.empty() && out.size() == 1) judge_.answer(out.front());
      } else if (is_within(r.figures, q_.limit_bytes) && !tight) {
        tight = r;
      }
    }
    if (!advice_.tight) advice_.tight = tightest(sets, out, std::move(tight), fastest);
    return out;
  }
  static bool is_slower(const Set& set, double ms) { return set.least_ms * (1 + kAlike) > ms; }

  // Returns the fastest remedy that fits the limit but leaves less than the margin: one of `sets`
  // that is faster than all `found` and than `known`, or else `known`.
  std::optional<Remedy> tightest(const std::vector<Set*>& sets, const Remedies& found,
                                 std::optional<Remedy> known, double fastest) {
    if (!found.empty()) fastest = std::min(fastest, found.front().figures.ms);
    if (known) fastest = std::min(fastest, known->figures.ms);
    for (Set* set : sets) {
      if (is_slower(*set, fastest)) break;
      const std::int64_t peak = set->remedy.figures.peak_bytes;
      if (!set->is_sketched || may_fit(peak, q_.within_bytes())) continue;
      if (!may_fit(peak, q_.limit_bytes)) continue;
      judge_.look_at(set->remedy);
      if (is_within(set->remedy.figures, q_.limit_bytes)) return set->remedy;
    }
    return known;
  }

  static bool is_much_less(std::int64_t peak, const Remedy& than) {
    return static_cast<double>(peak) <= kMuchLess * static_cast<double>(than.figures.peak_bytes);
  }

  // Returns, of `r` and the sets that fit and take at most 2 % longer, the one with the fewest
  // changes. Sets without figures are skipped: another set that fits has no more changes.
  Remedy simplest_like(const Remedy& r, const std::vector<Set*>& sets) {
    Remedy out = r;
    for (Set* set : sets) {
      Remedy& other = set->remedy;
      const bool is_alike = set->is_sketched && other.figures.ms <= r.figures.ms * (1 + kAlike);
      if (!is_alike || other.changes.size() >= out.changes.size()) continue;
      if (!may_fit(other.figures.peak_bytes, q_.within_bytes())) continue;
      judge_.look_at(other);
      if (is_within(other.figures, q_.within_bytes())) out = other;
    }
    return out;
  }

  // Adds, of the sets of the first severity that are not much slower, the one with the least peak,
  // if that is much lower: it leaves room for other programs, or a larger batch.
  void add_roomiest() {
    constexpr double kNotMuchSlower = 1.5;
    const Remedy first = advice_.remedies.front();
    const double most_ms = kNotMuchSlower * first.figures.ms;
    const Remedy* least = least_of(
        [&](const Remedy& r) { return r.severity == first.severity && !r.changes.empty(); },
        most_ms);
    if (least == nullptr || !is_much_less(least->figures.peak_bytes, advice_.remedies.back()))
      return;
    Remedy roomiest = *least;
    judge_.look_at(roomiest);
    advice_.remedies.push_back(std::move(roomiest));
  }

  Remedies last_resort(ChangeSeverity severity) {
    const Remedy* least =
        least_of([&](const Remedy& r) { return r.severity == severity && !r.changes.empty(); });
    return least == nullptr ? Remedies() : finer_recomputations(judge_, *least);
  }

  // Returns the remedy of least peak among those in `most_ms` for which `is` holds; nullptr: none.
  template <class Is>
  const Remedy* least_of(const Is& is, double most_ms = kNoTime) {
    std::vector<std::pair<std::int64_t, Set*>> by_kept;
    for (Set& set : sets_) {
      if (set.is_slower_than(most_ms)) break;
      if (is(set.remedy)) by_kept.emplace_back(bounds_.kept_bytes(set.remedy), &set);
    }
    std::ranges::sort(by_kept);
    const Set* out = nullptr;
    const auto least = [&] { return std::pair(out->remedy.figures.peak_bytes, out); };
    for (const auto& [kept, set] : by_kept) {
      if (out != nullptr && least() < std::pair<std::int64_t, const Set*>(kept, set)) break;
      if (out != nullptr && bounds_.least_bytes(set->remedy) > out->remedy.figures.peak_bytes)
        continue;
      sketch(*set);
      const StepFigures& figures = set->remedy.figures;
      if (figures.ms > most_ms) continue;
      if (out == nullptr ||
          std::pair<std::int64_t, const Set*>(figures.peak_bytes, set) < least()) {
        out = set;
      }
    }
    return out == nullptr ? nullptr : &out->remedy;
  }

  // True if a remedy is faster than all advised ones that are at most as severe.
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

  // Returns steps to change the task of: the one as asked, and for each severity the least peak.
  Remedies bases() {
    Remedies out;
    for (const ChangeSeverity most : {ChangeSeverity::kSameNumbers, ChangeSeverity::kOtherRoundings,
                                      ChangeSeverity::kOtherPrecision, ChangeSeverity::kOtherStates,
                                      ChangeSeverity::kCodedStates}) {
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
  PeakBounds bounds_;
  ChangeSets all_sets_;
  std::vector<Set> sets_;     // made so far
  std::int64_t weighed_ = 0;  // of them
  Advice advice_;
};

}  // namespace

Advice advise(const FitQuestion& question) {
  return Search(question).run();
}

}  // namespace tracestep
