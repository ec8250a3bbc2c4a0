#include "passes/recompute_budget.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "analysis/modelled_time.h"
#include "base/error.h"
#include "base/units.h"
#include "passes/recompute.h"
#include "passes/recompute_choices.h"

namespace tracestep {
namespace {

using Again = std::vector<bool>;
using Choice = RecomputeChoices::Choice;

constexpr std::size_t kMostTriedAll = 12;  // nodes of which every set is compared

class Search {
 public:
  Search(const Program& program, std::int64_t budget_bytes, DeviceKind kind, const PeakOf& peak_of)
      : program_(program),
        budget_bytes_(budget_bytes),
        kind_(kind),
        peak_of_(peak_of),
        choices_(program, kind) {}

  WithinBudget run() {
    if (consider(program_, "nothing")) return *best_;
    least_us_ = choices_.least_us(budget_bytes_);
    whole_blocks();
    parts_of_blocks();
    single_nodes();
    if (choices_.nodes().size() <= kMostTriedAll) every_set();
    if (!best_) fail();
    best_->least_us = std::min(least_us_, best_->again_us);
    return std::move(*best_);
  }

 private:
  // A choice that cannot fit: its peak only counts for the error.
  struct Misfit {
    std::int64_t least_bytes = 0;
    Program program;
    std::string name;
  };

  // Whether the choice fits. Peaks take most of the time: that of a choice which takes longer than
  // the best so far is not computed, and that of one which cannot fit only if nothing else does.
  bool consider(Program candidate, const std::string& name) {
    const double us = modelled_us(candidate, Phase::kRecompute, kind_);
    if (best_ && us >= best_->again_us) return false;
    const std::int64_t least_bytes = held_when_backward_begins(candidate);
    if (least_bytes > budget_bytes_) {
      if (!best_) misfits_.push_back({least_bytes, std::move(candidate), name});
      return false;
    }
    const std::int64_t peak = peak_of_(candidate);
    TRACESTEP_CHECK(peak >= least_bytes, "{}: a peak of {} B, and {} B are held", name, peak,
                    least_bytes);
    remember(peak, name);
    if (peak > budget_bytes_) return false;
    best_ = WithinBudget{std::move(candidate), name, peak, us};
    misfits_.clear();
    return true;
  }

  void remember(std::int64_t peak, const std::string& name) {
    if (peak >= least_peak_) return;
    least_peak_ = peak;
    least_name_ = name;
  }

  bool consider(const Again& again) {
    const auto nodes = std::ranges::count_if(
        choices_.makers(), [&](NodeId id) { return again[static_cast<std::size_t>(id)]; });
    return consider(
        recompute_nodes(program_, again),
        fmt::format("{} of the {} nodes that make what is saved", nodes, choices_.makers().size()));
  }

  // Larger groups take longer: the first that fits is the cheapest. Of sizes that make the same
  // number of groups only the smallest is tried.
  void whole_blocks() {
    const int blocks = choices_.block_count();
    int groups = 0;
    for (int every = 1; every <= blocks; ++every) {
      const int now = (blocks + every - 1) / every;
      if (now == groups) continue;
      groups = now;
      const Recomputation choice = parse_recomputation("recompute", fmt::format("every={}", every));
      if (consider(recompute(program_, choice), name_of(choice))) break;
    }
    if (!best_ && blocks > 0) {
      consider(recompute(program_, parse_recomputation("recompute", "nested")), "nested");
    }
  }

  // What all blocks have, each by itself: their attention, their feed-forward part.
  void parts_of_blocks() {
    std::set<std::string> paths;  // "layers.*.attn"
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (choices_.block_of(static_cast<NodeId>(i)) < 0) continue;
      const std::string& path = program_.nodes[i].origin().path;  // "layers.3.attn.q_proj"
      const std::size_t number = path.find('.'), part = path.find('.', number + 1);
      if (number == std::string::npos || part == std::string::npos) continue;
      const std::string name = path.substr(part, path.find('.', part + 1) - part);
      paths.insert(std::string(kBlocks) + name);
    }
    for (const std::string& path : paths) {
      consider(recompute(program_, parse_recomputation("recompute", path)), path);
    }
  }

  // The cheapest choice of the frontier that fits, and mixtures of it with the one before it.
  void single_nodes() {
    const std::vector<Choice> frontier = choices_.frontier();
    for (std::size_t i = 1; i < frontier.size(); ++i) {
      if (best_ && frontier[i].us >= best_->again_us && i + 1 < frontier.size()) break;
      if (!consider(frontier[i].again)) continue;
      between(frontier[i - 1].again, frontier[i].again);
      break;
    }
  }

  // The first blocks recompute `more`, the others `less`, with as few first blocks as fit: what
  // these keep is alive the longest.
  void between(const Again& less, const Again& more) {
    int low = 0, high = choices_.block_count();
    while (low < high) {
      const int middle = (low + high) / 2;
      if (consider(mixed(less, more, middle))) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    trim(mixed(less, more, high), less, high - 1);
  }

  Again mixed(const Again& less, const Again& more, int blocks) const {
    Again out = less;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const int block = choices_.block_of(static_cast<NodeId>(i));
      if (block < blocks) out[i] = more[i];
    }
    return out;
  }

  // Keeps what one block need not compute again after all; tries the longest nodes first.
  void trim(Again now, const Again& less, int block) {
    std::vector<NodeId> extra;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto id = static_cast<NodeId>(i);
      if (now[i] && !less[i] && choices_.block_of(id) == block) extra.push_back(id);
    }
    std::ranges::stable_sort(extra, std::greater(), [&](NodeId id) { return choices_.us_of(id); });
    for (NodeId id : extra) {
      now[static_cast<std::size_t>(id)] = false;
      if (!consider(now)) now[static_cast<std::size_t>(id)] = true;
    }
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

  [[noreturn]] void fail() {
    std::ranges::stable_sort(misfits_, {}, &Misfit::least_bytes);
    for (const Misfit& misfit : misfits_) {
      if (misfit.least_bytes < least_peak_) remember(peak_of_(misfit.program), misfit.name);
    }
    throw Error(
        ErrorCode::kUsage, "recompute",
        fmt::format("found no choice of what to compute again that brings the step's peak to {} "
                    "({} B)",
                    format_bytes(budget_bytes_), budget_bytes_),
        fmt::format("the least peak is {} ({} B), with {}", format_bytes(least_peak_), least_peak_,
                    least_name_));
  }

  const Program& program_;
  std::int64_t budget_bytes_;
  DeviceKind kind_;
  const PeakOf& peak_of_;
  RecomputeChoices choices_;
  std::optional<WithinBudget> best_;
  std::vector<Misfit> misfits_;  // while nothing fits
  double least_us_ = 0.0;
  std::int64_t least_peak_ = std::numeric_limits<std::int64_t>::max();
  std::string least_name_;
};

}  // namespace

std::string words_of(const WithinBudget& found) {
  const std::string peak = fmt::format("a peak of {}", format_bytes(found.peak_bytes));
  if (found.again_us == 0.0) return fmt::format("nothing needs computing again for {}", peak);
  return fmt::format(
      "computes again: {}, for {}; by the model (docs/memory.md) that takes {}, and no choice "
      "within "
      "the budget takes less than {}",
      found.choice, peak, format_duration_ms(found.again_us * 1e-3),
      format_duration_ms(found.least_us * 1e-3));
}

WithinBudget recompute_within(const Program& program, std::int64_t budget_bytes, DeviceKind kind,
                              const PeakOf& peak_of) {
  return Search(program, budget_bytes, kind, peak_of).run();
}

}  // namespace tracestep
