#include "passes/recompute_budget.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>

#include <fmt/format.h>

#include "analysis/modelled_time.h"
#include "base/error.h"
#include "base/units.h"
#include "ir/layer_path.h"
#include "passes/recompute.h"
#include "passes/recompute_choices.h"
#include "passes/recompute_profile.h"

namespace tracestep {
namespace {

using Again = std::vector<bool>;
using Choice = RecomputeChoices::Choice;

constexpr std::size_t kMostTriedAll = 12;  // nodes of which every set is compared

// A candidate of the search: a fixed choice, or a set of nodes that run again.
struct Candidate {
  Recomputation fixed = {};
  Again again = {};  // empty: the fixed choice

  bool is_fixed() const { return again.empty(); }
  bool is_nothing() const { return is_fixed() && fixed.kind == Recomputation::Kind::kNone; }
  auto operator<=>(const Candidate&) const = default;
};

// Returns the part of a block that a path is in: "layers.3.attn" for "layers.3.attn.q_proj"; or "".
std::string part_of_block(const std::string& path) {
  const std::string_view block = layer_of(path);
  if (block.empty() || block == path) return {};
  return path.substr(0, path.find('.', block.size() + 1));
}

// Results of examining a candidate, which hold for any budget.
struct Known {
  double us = 0.0;               // modelled time of what runs again
  std::int64_t held_bytes = 0;   // its peak is at least as high
  std::int64_t peak_bytes = -1;  // -1: not computed so far
};

}  // namespace

class BudgetSolver::Search {
 public:
  Search(const Program& program, DeviceKind kind, PeakOf peak_of, bool fuses)
      : program_(program),
        kind_(kind),
        fuses_(fuses),
        peak_of_(std::move(peak_of)),
        choices_(program, kind, fuses),
        profile_(program, choices_) {}

  WithinBudget run(std::int64_t budget_bytes) {
    if (!search(budget_bytes)) take_least(budget_bytes);
    best_->least_us = std::min(least_us_, best_->again_us);
    return std::move(*best_);
  }

 private:
  // True if a choice was found that fits.
  bool search(std::int64_t budget_bytes) {
    budget_bytes_ = budget_bytes;
    best_.reset();
    misfits_.clear();
    of_frontier_.clear();
    least_us_ = 0.0;
    if (consider(Candidate{})) return true;
    error_bytes_ = peak_of(known_[Candidate{}], program_) -
                   profile_.of(Again(program_.nodes.size(), false)).peak_bytes();
    least_us_ = choices_.least_us(budget_bytes);
    whole_blocks();
    first_blocks();
    parts_of_blocks();
    single_nodes();
    if (choices_.nodes().size() <= kMostTriedAll) every_set();
    return best_.has_value();
  }

  Program made(const Candidate& candidate) const {
    if (!candidate.is_fixed()) return recompute_nodes(program_, candidate.again);
    return candidate.is_nothing() ? program_ : recompute(program_, candidate.fixed);
  }

  Again again_of(const Candidate& candidate) const {
    if (!candidate.is_fixed()) return candidate.again;
    if (candidate.is_nothing()) return Again(program_.nodes.size(), false);
    const bool has_inside = candidate.fixed.kind == Recomputation::Kind::kParts;
    return has_inside ? choices_.inside(candidate.fixed) : Again();
  }

  std::string words_for(const Candidate& candidate) const {
    if (candidate.is_fixed()) return candidate.is_nothing() ? "nothing" : name_of(candidate.fixed);
    const auto nodes = std::ranges::count_if(choices_.makers(), [&](NodeId id) {
      return candidate.again[static_cast<std::size_t>(id)];
    });
    return fmt::format("{} of the {} nodes that make what is saved", nodes,
                       choices_.makers().size());
  }

  // Examines a candidate; true if it fits. Peaks take most of the time: none is computed for one
  // that takes longer than the best so far, nor, unless nothing else fits, for one that cannot fit.
  bool consider(const Candidate& candidate) {
    std::optional<Program> program;
    const auto [found, is_new] = known_.try_emplace(candidate);
    Known& known = found->second;
    if (is_new) {
      program = made(candidate);
      known = {.us = modelled_us(*program, Phase::kRecompute, kind_, fuses_),
               .held_bytes = held_when_backward_begins(*program)};
    }
    if (best_ && known.us >= best_->again_us) return false;
    if (known.held_bytes > budget_bytes_) {
      if (!best_) misfits_.push_back(found);
      return false;
    }
    if (!program) program = made(candidate);
    if (peak_of(known, *program) > budget_bytes_) return false;
    best_ = WithinBudget{.program = std::move(*program),
                         .choice = words_for(candidate),
                         .peak_bytes = known.peak_bytes,
                         .again_us = known.us,
                         .again = again_of(candidate)};
    best_is_fixed_ = candidate.is_fixed();
    return true;
  }
  bool consider(const Again& again) { return consider(Candidate{.again = again}); }

  // True if a choice fits, even if it takes longer than the best so far.
  bool fits(const Candidate& candidate) {
    if (consider(candidate)) return true;
    Known& known = known_[candidate];
    return known.held_bytes <= budget_bytes_ && peak_of(known, made(candidate)) <= budget_bytes_;
  }

  std::int64_t peak_of(Known& known, const Program& program) {
    if (known.peak_bytes >= 0) return known.peak_bytes;
    known.peak_bytes = peak_of_(program);
    TRACESTEP_CHECK(known.peak_bytes >= known.held_bytes, "a peak of {} B, and {} B are held",
                    known.peak_bytes, known.held_bytes);
    return known.peak_bytes;
  }

  // Tries groups of every size: mostly larger ones take longer, but not always. Of sizes that make
  // the same number of groups only the smallest is tried.
  void whole_blocks() {
    const int blocks = choices_.block_count();
    int groups = 0;
    for (int every = 1; every <= blocks; ++every) {
      const int now = (blocks + every - 1) / every;
      if (now == groups) continue;
      groups = now;
      consider(Candidate{.fixed = Recomputation::blocks(every)});
    }
    if (!best_ && blocks > 0) consider(Candidate{.fixed = Recomputation::nested()});
  }

  // Tries as few of the first blocks as fit, found by halving: values of these live the longest.
  void first_blocks() {
    std::vector<std::string> names(static_cast<std::size_t>(choices_.block_count()));
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const int block = choices_.block_of(static_cast<NodeId>(i));
      if (block >= 0)
        names[static_cast<std::size_t>(block)] = layer_of(program_.nodes[i].origin().path);
    }
    const auto first = [&](int count) {
      return Candidate{.fixed = Recomputation::parts({names.begin(), names.begin() + count})};
    };
    int too_few = 0, end = choices_.block_count();
    while (too_few + 1 < end) {
      const int middle = (too_few + end) / 2;
      (fits(first(middle)) ? end : too_few) = middle;
    }
  }

  // Tries parts that all blocks have, each kind by itself: the attention, the feed-forward part.
  void parts_of_blocks() {
    std::set<std::string> paths;  // "layers.*.attn"
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (choices_.block_of(static_cast<NodeId>(i)) < 0) continue;
      const std::string part = part_of_block(program_.nodes[i].origin().path);
      if (!part.empty()) paths.insert(std::string(kBlocks) + part.substr(part.rfind('.')));
    }
    for (const std::string& path : paths) {
      consider(Candidate{.fixed = Recomputation::parts({path})});
    }
  }

  // Improves the first choice of the frontier that fits, and its mixture with the choice before it;
  // then the best fixed choice, if that still takes less time.
  void single_nodes() {
    from_frontier();
    if (best_ && best_is_fixed_ && !best_->again.empty()) improve(best_->again);
    if (best_ && !of_frontier_.empty()) from_little_kept();
    if (best_ && !best_->again.empty()) keep_parts();
    if (best_ && !best_->again.empty()) keep_what_fits();
  }

  // Begins with sets that keep little, so that there is room for what saves the most time: all runs
  // again that takes little time for its bytes, or the choice of the frontier and the casts of
  // weights do. Results that blocks hand on are added up again from their terms, one of which is
  // narrower in mixed precision or kept anyway; the last block of each group of neighbours keeps
  // its result, as all results of a group are there when backward begins with it.
  void from_little_kept() {
    Again casts = of_frontier_;
    for (NodeId id : choices_.nodes()) {
      if (is_weight_cast(id)) casts[static_cast<std::size_t>(id)] = true;
    }
    const double before_us = best_->again_us;
    for (const int group : {8, 4, 2}) {
      for (Again again : {casts, choices_.thinnest().again}) {
        for (NodeId id : choices_.handing_on(group)) again[static_cast<std::size_t>(id)] = true;
        improve(again);
      }
      if (best_->again_us < before_us) return;
    }
  }

  bool is_weight_cast(NodeId id) const {
    return program_.value(program_.node(id).outputs[0]).role == Role::kWeightCast;
  }

  // Returns how many choices to examine exactly at the end: peaks of large programs take long.
  std::size_t last_tries() const {
    constexpr std::size_t kMostNodes = 40'000;  // of programs that are planned, in all
    return kMostNodes / program_.nodes.size();
  }

  // A part of a block, such as its attention, of which some nodes run again.
  struct Part {
    std::vector<std::size_t> nodes;
    double saved_us = 0;          // by keeping it
    std::int64_t more_bytes = 0;  // of the estimated peak
  };

  static Again without(Again again, std::span<const Part> parts) {
    for (const Part& part : parts) {
      for (std::size_t i : part.nodes) again[i] = false;
    }
    return again;
  }

  // Returns parts with nodes that run again, by the time that keeping one saves per byte it holds.
  std::vector<Part> parts_again() const {
    std::map<std::string, Part> by_path;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (!best_->again[i] || choices_.block_of(static_cast<NodeId>(i)) < 0) continue;
      const std::string path = part_of_block(program_.nodes[i].origin().path);
      if (!path.empty()) by_path[path].nodes.push_back(i);
    }
    const RecomputeProfile::Profile now = profile_.of(best_->again);
    std::vector<Part> out;
    for (auto& [path, part] : by_path) {
      const RecomputeProfile::Profile kept = profile_.of(without(best_->again, {&part, 1}));
      part.saved_us = now.us - kept.us;
      part.more_bytes = std::max<std::int64_t>(0, kept.peak_bytes() - now.peak_bytes());
      if (part.saved_us > 0) out.push_back(std::move(part));
    }
    std::ranges::stable_sort(out, [](const Part& a, const Part& b) {
      return static_cast<double>(a.more_bytes) * b.saved_us <
             static_cast<double>(b.more_bytes) * a.saved_us;
    });
    return out;
  }

  // Keeps parts, whatever the estimate says of the peak: as many of the first ones as fit, found by
  // halving, and then each of the others by itself.
  void keep_parts() {
    const std::vector<Part> parts = parts_again();
    const Again from = best_->again;
    std::size_t fit = 0, end = parts.size() + 1;
    while (fit + 1 < end) {
      const std::size_t middle = (fit + end) / 2;
      (consider(without(from, std::span(parts).first(middle))) ? fit : end) = middle;
    }
    std::size_t left = last_tries();
    for (std::size_t i = fit; i < parts.size() && left > 0; ++i, --left) {
      consider(without(best_->again, {&parts[i], 1}));
    }
  }

  // Tries to keep nodes that run again one by one, with an exact peak where the estimate lets one
  // fit. Nodes outside of blocks in any case: they are few, and the estimate is rough for the loss.
  void keep_what_fits() {
    std::size_t left = last_tries();
    Again again = best_->again;
    const std::int64_t error = best_->peak_bytes - profile_.of(again).peak_bytes();
    for (std::size_t i = again.size(); i-- > 0 && left > 0;) {
      if (!again[i]) continue;
      again[i] = false;
      const RecomputeProfile::Profile profile = profile_.of(again);
      const bool is_outside = choices_.block_of(static_cast<NodeId>(i)) < 0;
      const bool may_fit = is_outside || profile.peak_bytes() + error <= budget_bytes_;
      if (may_fit && profile.us < best_->again_us) {
        --left;
        if (consider(again)) continue;
      }
      again[i] = true;
    }
  }

  void from_frontier() {
    const std::vector<Choice>& frontier = choices_.frontier();
    for (std::size_t i = 1; i < frontier.size(); ++i) {
      if (estimate(frontier[i].again) > budget_bytes_) continue;
      of_frontier_ = frontier[i].again;
      const bool fits = improve(mixed(frontier[i - 1].again, frontier[i].again));
      if (improve(frontier[i].again) || fits) return;
    }
    for (const Choice& choice : frontier) {
      if (consider(choice.again)) return void(improve(choice.again));
    }
  }

  // Returns the peak that the choice would have if later passes always changed it by error_bytes_.
  std::int64_t estimate(const Again& again) const {
    return profile_.of(again).peak_bytes() + error_bytes_;
  }

  // Returns a mixture: the first blocks recompute `more`, the others `less`. It takes as few first
  // blocks as seem to fit, because what these keep is alive the longest.
  Again mixed(const Again& less, const Again& more) {
    for (int blocks = 0; blocks < choices_.block_count(); ++blocks) {
      Again out = less;
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (choices_.block_of(static_cast<NodeId>(i)) < blocks) out[i] = more[i];
      }
      if (estimate(out) <= budget_bytes_) return out;
    }
    return more;
  }

  // Keeps what need not run again after all. The error of the estimate changes little between sets
  // that differ little: it is taken from the set before, until the estimate no longer moves. Each
  // round begins anew: with too little room for what saves most, it would be filled with the rest.
  // Returns true if a set was found that fits.
  bool improve(const Again& from) {
    constexpr int kMostRounds = 6;
    std::int64_t error = error_bytes_;
    bool fits = false;
    Again last;
    for (int round = 0; round < kMostRounds; ++round) {
      Again next = profile_.lightened(from, budget_bytes_ - error);
      if (next == last || (best_ && profile_.of(next).us >= best_->again_us)) break;
      const std::int64_t peak_bytes = peak_of(next);
      error = peak_bytes - profile_.of(next).peak_bytes();
      last = next;
      if (peak_bytes > budget_bytes_) continue;
      fits = true;
    }
    return fits;
  }

  // Returns the exact peak of a choice, whether it fits or not.
  std::int64_t peak_of(const Again& again) {
    consider(again);
    const Candidate candidate{.again = again};
    return peak_of(known_[candidate], made(candidate));
  }

  void every_set() {
    const std::vector<NodeId>& nodes = choices_.nodes();
    for (std::size_t set = 1; set < (std::size_t{1} << nodes.size()); ++set) {
      Again again(program_.nodes.size(), false);
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        if ((set >> i & 1) != 0) again[static_cast<std::size_t>(nodes[i])] = true;
      }
      consider(again);
    }
  }

  // Takes the choice with the least peak if it fits; else throws with that peak.
  void take_least(std::int64_t budget_bytes) {
    if (!least_) least_ = found_least();
    if (least_->peak_bytes > budget_bytes) {
      throw BudgetNotMet(budget_bytes, least_->peak_bytes, least_->choice);
    }
    best_ = least_;
    least_us_ = choices_.least_us(budget_bytes);
  }

  // Begins with a budget that nothing fits, takes the least peak of what that search looked at, and
  // asks for less and less, as the search may then find other choices. What is found does not
  // depend on the budgets that were asked for before: a peak that an error names is met later.
  WithinBudget found_least() {
    search(1);
    std::ranges::stable_sort(misfits_, {},
                             [](const auto& misfit) { return misfit->second.held_bytes; });
    auto least = misfits_.front();
    budget_bytes_ = std::numeric_limits<std::int64_t>::max();
    for (const auto& misfit : misfits_) {
      auto& [candidate, known] = *misfit;
      if (known.held_bytes >= budget_bytes_) break;
      if (peak_of(known, made(candidate)) >= budget_bytes_) continue;
      budget_bytes_ = known.peak_bytes;
      least = misfit;
    }
    best_.reset();
    consider(least->first);
    WithinBudget out = std::move(*best_);
    while (search(out.peak_bytes - 1)) out = std::move(*best_);
    return out;
  }

  const Program& program_;
  DeviceKind kind_;
  bool fuses_;
  PeakOf peak_of_;
  RecomputeChoices choices_;
  RecomputeProfile profile_;
  std::map<Candidate, Known> known_;

  // State of the search for one budget.
  std::int64_t budget_bytes_ = 0;
  std::optional<WithinBudget> best_;
  bool best_is_fixed_ = false;
  Again of_frontier_;  // the first choice of it that seems to fit, as it is
  std::vector<std::map<Candidate, Known>::iterator> misfits_;  // while nothing fits
  double least_us_ = 0.0;
  std::int64_t error_bytes_ = 0;  // of the profile, without recomputation

  std::optional<WithinBudget> least_;  // as found_least() found it
};

BudgetNotMet::BudgetNotMet(std::int64_t budget_bytes, std::int64_t least_peak_bytes,
                           const std::string& least_name)
    : Error(ErrorCode::kUsage, "recompute"_field,
            fmt::format("found no choice of what to compute again that brings the step's peak to "
                        "{} ({} B)",
                        format_bytes(budget_bytes), budget_bytes),
            fmt::format("the least peak is {} ({} B), with {}", format_bytes(least_peak_bytes),
                        least_peak_bytes, least_name)),
      least_peak_bytes_(least_peak_bytes),
      least_name_(least_name) {}

std::string words_of(const WithinBudget& found) {
  const std::string peak = fmt::format("a peak of {}", format_bytes(found.peak_bytes));
  if (found.again_us == 0.0) return fmt::format("nothing needs computing again for {}", peak);
  return fmt::format(
      "computes again: {}, for {}; by the model (docs/memory.md) that takes {}, and no choice "
      "within the budget takes less than {}",
      found.choice, peak, format_duration_ms(found.again_us * 1e-3),
      format_duration_ms(found.least_us * 1e-3));
}

BudgetSolver::BudgetSolver(const Program& program, DeviceKind kind, PeakOf peak_of, bool fuses)
    : search_(std::make_unique<Search>(program, kind, std::move(peak_of), fuses)) {}

BudgetSolver::~BudgetSolver() = default;

WithinBudget BudgetSolver::within(std::int64_t budget_bytes) {
  return search_->run(budget_bytes);
}

WithinBudget recompute_within(const Program& program, std::int64_t budget_bytes, DeviceKind kind,
                              const PeakOf& peak_of, bool fuses) {
  return BudgetSolver(program, kind, peak_of, fuses).within(budget_bytes);
}

}  // namespace tracestep
