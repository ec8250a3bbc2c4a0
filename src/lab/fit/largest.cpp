#include "lab/fit/largest.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/integers.h"
#include "base/units.h"
#include "exec/executor.h"
#include "lab/fit/plan.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/run_grid.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr std::int64_t kContextUnit = 64;                  // odd lengths are slow
constexpr std::int64_t kMostSize = std::int64_t{1} << 20;  // of a batch and a context (spec/fields)
// A peak with nested recomputation, extrapolated from few layers, may be off by up to this factor.
constexpr double kNestedError = 1.05;
// A set of changes has a row if its size exceeds that of the row above by at least this factor.
constexpr double kWorthARow = 1.1;

// A row of the table: a step with changes, and the largest batch or context with which it fits.
struct Largest {
  Remedy remedy;
  std::string flags;       // of the changes, without the size
  std::int64_t size = 0;   // 0: none fits
  bool is_capped = false;  // the search ended before the memory did

  std::string change() const { return flags.empty() ? "as asked for" : flags; }
};

// Searches the largest number of units of a batch or context, in [1, most], whose peak is within a
// limit, by secants: as peaks grow with the size, a line through two known peaks leads near it.
template <class PeakOf>  // std::optional<std::int64_t>(std::int64_t units); nothing: refused
class Bracket {
 public:
  Bracket(std::int64_t most, std::int64_t limit, PeakOf peak_of)
      : fails_(most + 1), limit_(limit), peak_of_(std::move(peak_of)) {}

  // Finds the largest size; tries `near` first, then its neighbour on the side that is still open.
  std::int64_t largest_near(std::int64_t near) {
    near = std::clamp<std::int64_t>(near, 1, fails_ - 1);
    try_units(near);
    const std::int64_t beside = fits_ == near ? near + 1 : near - 1;
    if (beside > fits_ && beside < fails_) try_units(beside);
    return largest(on_line());
  }

  // Finds the largest size that fits, 0 if none does; tries `guess` first.
  std::int64_t largest(std::int64_t guess) {
    for (int i = 0; fails_ - fits_ > 1; ++i) {
      const std::int64_t width = fails_ - fits_;
      try_units(std::clamp(guess, fits_ + 1, fails_ - 1));
      // A line that cuts off less than half of what is left is followed by a step to the middle.
      const bool is_slow = i > 2 && 2 * (fails_ - fits_) > width;
      guess = is_slow ? fits_ + (fails_ - fits_) / 2 : on_line();
      // Peaks far beyond the limit may be more than numbers hold.
      constexpr std::int64_t kMostGrowth = 16;
      guess = std::min(guess, kMostGrowth * std::max<std::int64_t>(fits_, 1));
    }
    return fits_;
  }

 private:
  struct Point {
    double units, peak;
  };

  void try_units(std::int64_t units) {
    const std::optional<std::int64_t> peak = peak_of_(units);
    (peak && *peak <= limit_ ? fits_ : fails_) = units;
    if (!peak) return;
    before_ = last_;
    last_ = Point{static_cast<double>(units), static_cast<double>(*peak)};
  }

  std::int64_t on_line() const {
    if (!before_ || last_->units == before_->units) return 2 * std::max<std::int64_t>(fits_, 1);
    const double slope = (last_->peak - before_->peak) / (last_->units - before_->units);
    if (slope <= 0) return 2 * std::max<std::int64_t>(fits_, 1);
    const double units = last_->units + (static_cast<double>(limit_) - last_->peak) / slope;
    return static_cast<std::int64_t>(std::clamp(units, 1.0, static_cast<double>(kMostSize)));
  }

  std::int64_t fits_ = 0, fails_;
  std::int64_t limit_;
  PeakOf peak_of_;
  std::optional<Point> last_, before_;
};

class Finder {
 public:
  Finder(const FitQuestion& q, Growth growth) : q_(q), judge_(q), growth_(growth) {}

  std::vector<Largest> find() {
    std::vector<Largest> out{largest({}, 0, By::kWholePrograms)};
    if (out[0].size > 0) judge_.answer(out[0].remedy);
    const std::vector<Choices> all = sets();
    for (std::size_t i = 0; i < all.size(); ++i) {
      judge_.reach({static_cast<std::int64_t>(i), std::ssize(all)});
      const Choices& set = all[i];
      const std::int64_t before = out.back().size;
      if (before >= asked_size() && is_of_another_task(set)) continue;
      // Peaks grow with the size, so the size that is worth a row fits if any larger one does.
      const auto worth =
          static_cast<std::int64_t>(std::ceil(kWorthARow * static_cast<double>(before)));
      const Largest next = largest(set, std::max<std::int64_t>(worth - 1, 0), By::kSketches);
      if (next.size == 0 || next.size < worth) continue;
      // Without a change that is not needed more may fit: an early update with states that are not
      // in the device's memory.
      Largest row = largest(needed(set, next), next.size - 1, By::kWholePrograms);
      if (row.size < worth)  // the sketch of a change that was dropped said too little
        row = largest(set, worth - 1, By::kWholePrograms);
      if (row.size < worth) continue;
      out.push_back(std::move(row));
      judge_.answer(out.back().remedy);
    }
    return out;
  }

 private:
  // --- sizes ------------------------------------------------------------------------------------

  // Returns the ways to share the step among ranks that are tried: for each degree of tensor
  // parallelism the lowest and the highest ZeRO stage.
  std::vector<Parallel> ways() const {
    if (q_.parallels.empty()) return {q_.step.parallel};
    std::vector<Parallel> out;
    for (std::size_t i = 0; i < q_.parallels.size(); ++i) {
      const auto is_alike = [&](std::size_t other) {
        return other < q_.parallels.size() && q_.parallels[other].tensor == q_.parallels[i].tensor;
      };
      if (!is_alike(i - 1) || !is_alike(i + 1)) out.push_back(q_.parallels[i]);
    }
    return out;
  }

  std::int64_t unit(const RunSpec& step) const {
    return growth_ == Growth::kContext ? kContextUnit : step.parallel.replicas();
  }
  // The largest size that commands accept, or that the model has positions for.
  std::int64_t most_size() const {
    const ModelConfig& model = q_.step.model;
    const bool is_bounded = growth_ == Growth::kContext && model.positions == Positions::kLearned;
    return is_bounded ? std::min(kMostSize, model.max_positions) : kMostSize;
  }
  std::int64_t most_units(const RunSpec& step) const {
    const std::int64_t size = most_size(), of = unit(step);
    return growth_ == Growth::kContext ? ceil_div(size, of) : size / of;
  }

  // Returns the size as asked; once a row reaches it, changes that alter the task are not tried.
  std::int64_t asked_size() const {
    RunSpec asked = q_.step;
    return size_of(asked);
  }

  std::int64_t& size_of(RunSpec& step) const {
    return growth_ == Growth::kBatch ? step.shape.batch : step.shape.context;
  }
  Remedy changed(const Choices& set, const Parallel& parallel) const {
    Remedy out{.step = q_.step};
    out.step.parallel = parallel;
    for (const StepChange& change : set) {
      change.apply(out.step);
      out.severity = std::max(out.severity, change.severity);
    }
    judge_.describe(out);
    return out;
  }
  Remedy with_units(Remedy r, std::int64_t units) const {
    size_of(r.step) = std::min(units * unit(r.step), most_size());
    return r;
  }

  // Returns the peak that `look` finds; nullopt if the step is refused or its own budget not met.
  std::optional<std::int64_t> peak_of(Remedy& r, void (Judge::*look)(Remedy&)) {
    if (refusal_of(r.step)) return std::nullopt;
    (judge_.*look)(r);
    const bool has_peak = r.figures.peak_bytes > 0 && r.figures.refusal == nullptr;
    return has_peak ? std::optional(r.figures.peak_bytes) : std::nullopt;
  }
  std::optional<std::int64_t> sketched_peak(Remedy r) {
    if (refusal_of(r.step)) return std::nullopt;
    const std::optional<std::int64_t> nested = judge_.nested_peak(r);
    if (!nested) return peak_of(r, &Judge::sketch);
    return *nested < kRefusedBytes ? nested : std::nullopt;
  }

  // The programs by whose peaks a size fits: those of few layers (sketches), or whole ones.
  enum class By : std::uint8_t { kSketches, kWholePrograms };

  // Returns the largest size that fits over all ways to share the step; 0: none above `before`.
  Largest largest(const Choices& set, std::int64_t before, By by) {
    std::optional<Largest> out;
    for (const Parallel& parallel : ways()) {
      const Remedy start = changed(set, parallel);
      const std::int64_t above = std::max(before, out ? out->size : 0);
      const bool is_known = above > 0 && !has_budget(start.step);
      const std::int64_t guess = above / unit(start.step) + 1;
      if (is_known && !may_fit_with(start, guess)) continue;
      Largest next = largest_of(start, guess, by);
      if (!out || next.size > out->size) out = std::move(next);
    }
    if (out) return *out;
    const Remedy start = changed(set, ways().front());
    return {.remedy = start, .flags = start.command};
  }

  bool may_fit_with(const Remedy& start, std::int64_t units) {
    if (units > most_units(start.step)) return false;
    const std::optional<std::int64_t> peak = sketched_peak(with_units(start, units));
    const bool is_nested = start.step.recompute.kind == Recomputation::Kind::kNested;
    return peak && may_fit(*peak, is_nested ? with_error_of_nested() : q_.within_bytes());
  }

  // Returns the limit for sketched peaks with nested recomputation, widened by their error.
  std::int64_t with_error_of_nested() const {
    return static_cast<std::int64_t>(kNestedError * static_cast<double>(q_.within_bytes()));
  }

  // Finds the largest size from `start` by programs of few layers, then, if asked, by whole ones.
  Largest largest_of(const Remedy& start, std::int64_t guess, By by) {
    Largest out{.remedy = start, .flags = start.command};
    const auto sketched = [&](std::int64_t units) {
      return sketched_peak(with_units(start, units));
    };
    const auto exact = [&](std::int64_t units) {
      Remedy tried = with_units(start, units);
      const std::optional<std::int64_t> peak = peak_of(tried, &Judge::look_at);
      if (peak && *peak <= q_.within_bytes()) out.remedy = tried;
      return peak;
    };
    const std::int64_t most = most_units(start.step);
    std::int64_t units = 0;
    if (has_budget(start.step)) {
      units = Bracket(most, q_.within_bytes(), exact).largest(of_blocks(start));
    } else {
      units = Bracket(most, q_.within_bytes(), sketched).largest(guess);
      if (by == By::kSketches) out.remedy = with_units(start, units);
      if (by == By::kWholePrograms && units > 0)
        units = Bracket(most, q_.within_bytes(), exact).largest_near(units);
    }
    out.is_capped = units == most;
    out.size = units > 0 ? size_of(out.remedy.step) : 0;
    return out;
  }

  // Returns the largest size with all blocks recomputed, by sketches: a first guess for a budget.
  std::int64_t of_blocks(Remedy blocks) {
    const std::int64_t within = std::min(q_.within_bytes(), blocks.step.recompute.budget_bytes);
    blocks.step.recompute = Recomputation::blocks();
    const auto sketched = [&](std::int64_t units) {
      return sketched_peak(with_units(blocks, units));
    };
    return Bracket(most_units(blocks.step), within, sketched).largest(1);
  }

  // --- changes ----------------------------------------------------------------------------------

  // Returns the sets to try: all changes up to each severity, with blocks recomputed and nested;
  // then the optimizer in host memory (slow), then chunked feed-forwards; last all in bfloat16.
  std::vector<Choices> sets() const {
    using enum ChangeSeverity;
    std::vector<Choices> out;
    Choices most;
    for (const ChangeSeverity severity :
         {kSameNumbers, kOtherRoundings, kOtherPrecision, kOtherStates, kCodedStates}) {
      std::ranges::copy(changes_of(severity), std::back_inserter(most));
      add_recomputed(most, out);
    }
    const bool may_move = q_.step.mode == Mode::kStep && q_.traits.has_own_memory();
    const auto add_offloaded = [&] {
      if (!may_move) return;
      out.push_back(out.back());
      out.back().push_back({kSameNumbers, offload_optimizer});
    };
    add_offloaded();
    add_in_chunks(may_move, out);
    if (is_pure(q_.step.precision)) return out;
    most.push_back(
        {kOtherTask, [](RunSpec& step) { step.precision = {.parameters = DType::kBF16}; }});
    add_recomputed(most, out);
    add_offloaded();
    return out;
  }

  void add_recomputed(const Choices& set, std::vector<Choices>& out) const {
    if (q_.step.mode == Mode::kInference) return out.push_back(set);
    for (const Recomputation& choice : {Recomputation::blocks(), Recomputation::nested()}) {
      out.push_back(set);
      out.back().push_back(
          {ChangeSeverity::kSameNumbers, [=](RunSpec& step) { step.recompute = choice; }});
    }
  }

  // Adds the last set with feed-forwards in chunks; if `may_move`, adds it once more with the
  // inputs of blocks in the host's memory as well.
  void add_in_chunks(bool may_move, std::vector<Choices>& out) const {
    if (q_.step.mode == Mode::kInference || q_.step.model.captured != nullptr) return;
    Choices set = out.back();
    set.push_back({ChangeSeverity::kOtherRoundings, [](RunSpec& step) { step.ffn_chunks = 0; }});
    out.push_back(set);
    if (!may_move) return;
    set.push_back({ChangeSeverity::kSameNumbers, [](RunSpec& step) {
                     step.recompute = Recomputation::blocks();
                     step.offload = offload_of(has_optimizer(step.offload), true);
                   }});
    out.push_back(std::move(set));
  }

  static bool is_of_another_task(const Choices& set) {
    return std::ranges::any_of(set, [](const StepChange& change) {
      return change.severity == ChangeSeverity::kOtherTask;
    });
  }

  // Returns all changes of one severity but those of recomputation and of offload.
  Choices changes_of(ChangeSeverity severity) const {
    Choices out;
    for (const Choices& choices : choices_of(q_.step, q_.traits)) {
      for (const StepChange& change : choices) {
        RunSpec step = q_.step;
        change.apply(step);
        const bool is_of_others =
            step.recompute != q_.step.recompute || step.offload != q_.step.offload;
        if (!is_of_others && change.severity == severity) out.push_back(change);
      }
    }
    return out;
  }

  // Returns the set less those changes that the size found does not need; drops the severest first.
  Choices needed(Choices set, const Largest& found) {
    std::ranges::stable_sort(set, std::greater{}, &StepChange::severity);
    for (std::size_t i = 0; i < set.size();) {
      Choices fewer = set;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      Remedy tried = changed(fewer, found.remedy.step.parallel);
      size_of(tried.step) = found.size;
      if (is_within_margin(tried)) {
        set = std::move(fewer);
      } else {
        ++i;
      }
    }
    return set;
  }

  // True if the step leaves the margin free, by programs of few layers unless it has a budget.
  bool is_within_margin(Remedy& tried) {
    const std::optional<std::int64_t> peak = sketched_peak(tried);
    return peak && *peak <= q_.within_bytes();
  }

  const FitQuestion& q_;
  Judge judge_;
  Growth growth_;
};

std::string title_of(const FitQuestion& asked, Growth growth) {
  const std::string unit =
      growth == Growth::kContext ? fmt::format(", in steps of {}", kContextUnit) : "";
  const std::string within =
      asked.margin > 0
          ? fmt::format("{}, {:.3g} % less than {}", format_bytes(asked.within_bytes()),
                        100 * asked.margin, format_bytes(asked.limit_bytes))
          : format_bytes(asked.limit_bytes);
  return fmt::format("The largest {} in {}{}", name_of(growth), within, unit);
}

Fields<Largest> fields_of(const FitQuestion& asked, Growth growth) {
  using L = const Largest&;
  const auto where_any = [](auto value) { return [=](L l) { return when(l.size > 0, value(l)); }; };
  const std::string size = std::string(name_of(growth));
  Fields<Largest> fields = {
      {col::change("flags beyond those that were given"), &Largest::change},
      {data_only(text_column("growth", {}, "what is to be as large as it can")),
       [size](L) { return size; }},
      {data_only(col::devices("that share the step, where a number of them is given")),
       [&](L l) { return when(!asked.parallels.empty(), l.remedy.step.parallel.ranks); }},
      {int_column(size, "largest " + size), where_any([](L l) { return l.size; })},
      {col::peak_bytes.titled("predicted peak"),
       where_any([](L l) { return l.remedy.figures.peak_bytes; })}};
  if (asked.times != nullptr) {
    fields.add(col::predicted_ms, where_any([](L l) { return l.remedy.figures.ms; }));
    fields.add(col::tokens_per_s("at that time"),
               where_any([&](L l) { return tokens_per_s(asked, l.remedy); }));
  }
  fields.add(col::severity, [](L l) { return when(!l.flags.empty(), name_of(l.remedy.severity)); });
  fields.add(data_only(col::command), where_any([](L l) { return command_of(l.remedy.step); }));
  for (const Field<RunSpec>& field : task_fields()) {
    if (field.column.name == size) continue;
    fields.add(field.column, [&asked, get = field.get](L) { return get(asked.step); });
  }
  return fields;
}

}  // namespace

Table largest_table(const FitQuestion& asked, Growth growth) {
  const std::vector<Largest> rows = Finder(asked, growth).find();
  Table table = table_of("largest", title_of(asked, growth), fields_of(asked, growth), rows);
  const bool has_auto_chunks = std::ranges::any_of(
      rows, [](const Largest& row) { return row.remedy.step.loss_chunks == 0; });
  if (has_auto_chunks) {
    table.notes.push_back(
        fmt::format("a search ends at the first {} that does not fit; as the loss of larger ones "
                    "is computed in more parts, a larger one may fit",
                    name_of(growth)));
  }
  for (const Largest& row : rows) {
    if (!row.is_capped) continue;
    const std::string_view most = row.size < kMostSize ? "all that the model has positions for"
                                                       : "the most that commands take";
    table.notes.push_back(
        fmt::format("{}: more than {} would fit, which is {}", row.change(), row.size, most));
  }
  return table;
}

std::optional<RunSpec> at_largest_context(RunSpec step, const DeviceTraits& traits,
                                          std::int64_t limit_bytes) {
  std::optional<RunSpec> out;
  FiguresOfSteps figures(traits, nullptr);
  for (std::int64_t tokens = kContextUnit; tokens <= kMostSize; tokens *= 2) {
    step.shape.context = tokens;
    if (refusal_of(step) || !is_within(figures.exact(step), limit_bytes)) break;
    out = step;
  }
  return out;
}

}  // namespace tracestep
