// The tables over several profiled cells: passes and clocks.
#include <algorithm>
#include <map>

#include "lab/measure/recorded_times.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/statistics.h"
#include "lab/profile/lanes.h"
#include "lab/profile/tables.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// The work of a pass: time of all kernels, time of matrix products, and both sorts by kernel name.
struct Pass {
  double ms = 0, product_ms = 0, product_flops = 0, launches = 0;
  struct Kernel {
    double ms = 0, launches = 0;
  };
  std::map<std::string, Kernel> products, others;

  void add(const Work& w) {
    ms += w.sums.ms;
    launches += w.sums.launches;
    if (is_product(w)) {
      product_ms += w.sums.ms;
      product_flops += w.sums.flops;
    }
    Kernel& k = (is_product(w) ? products : others)[w.kernel];
    k.ms += w.sums.ms;
    k.launches += w.sums.launches;
  }
};

using NamedKernel = std::pair<std::string, Pass::Kernel>;

std::optional<NamedKernel> longest(const std::map<std::string, Pass::Kernel>& kernels) {
  const auto found =
      std::ranges::max_element(kernels, {}, [](const auto& entry) { return entry.second.ms; });
  if (found == kernels.end()) return std::nullopt;
  return NamedKernel(*found);
}

std::optional<NamedKernel> longest_of_all(const Pass& pass) {
  const auto a = longest(pass.products), b = longest(pass.others);
  if (!a || !b) return a ? a : b;
  return a->second.ms >= b->second.ms ? a : b;
}

// A pass of a profiled cell, as a row of a table; `pass` is null if the cell did not run.
struct PassRow {
  const Profile& profile;
  std::string name;
  const Pass* pass;
  std::optional<NamedKernel> top, top_other;
  std::string verdict;
};

using R = const PassRow&;

// Returns the columns of a pass's slowest kernel, whose names begin with "top" or "top_other".
Fields<PassRow> top_fields(const std::string& prefix, const char* title, const char* description,
                           std::optional<NamedKernel> PassRow::*top) {
  const auto field = [top](Column column, auto get) {
    return Field<PassRow>{std::move(column),
                          [top, get](R r) { return r.*top ? Json(get(r, *(r.*top))) : Json(); }};
  };
  using K = const NamedKernel&;
  return {field(timed(text_column(prefix + "_kernel", title, description)),
                [](R, K k) { return k.first; }),
          field(timed(real_column(prefix + "_percent", "its share", "%", 1, "of the pass")),
                [](R r, K k) { return percent_of(k.second.ms, r.pass->ms); }),
          field(real_column(prefix + "_launches", "its launches", "", 0, "in one step"),
                [](R, K k) { return k.second.launches; }),
          field(data_only(real_column(prefix + "_ms", "", "ms", 4)),
                [](R, K k) { return k.second.ms; })};
}

Fields<PassRow> pass_fields() {
  Fields<PassRow> out{};
  out.add(axis_columns(), [](R r) { return &r.profile.spec.step; });
  out.add(as_key(col::pass("a phase, or all of the step")), &PassRow::name);
  out.add(col::status, [](R r) { return name_of(r.profile.status); });
  const Fields<Pass> sums = {
      {col::ms.titled("kernels", "sum of the kernels' times in one step"), &Pass::ms},
      {as_exact(real_column("launches", "launches", "", 0, "in one step, of kernels as recorded")),
       &Pass::launches},
      {timed(real_column("products_percent", "products", "%", 1,
                         "matrix products' share of the kernels' time")),
       [](const Pass& p) { return percent_of(p.product_ms, p.ms); }},
      {data_only(real_column("products_ms", "", "ms", 4)), &Pass::product_ms}};
  out.add(sums, [](R r) { return r.pass; });
  out.add(top_fields("top", "top kernel", "", &PassRow::top));
  out.add(top_fields("top_other", "top other kernel", "that multiplies no matrices",
                     &PassRow::top_other));
  Column verdict = verdict_column();
  verdict.title = "recorded steps";
  verdict.description = "of the validity checker: on the recorded steps, whose shares these are";
  return out.add(std::move(verdict), [](R r) { return or_null(r.verdict); });
}

std::map<std::string, Pass> passes_of(const ProfiledCell& cell) {
  std::map<std::string, Pass> out;
  for (const Work& w : cell.work.rows) {
    if (w.has_node) out[w.phase].add(w);
    out["all"].add(w);
  }
  return out;
}

// True if `a` is inference and `b` trains, both ran, and they agree in all other fields.
bool are_inference_and_training(const Profile& a, const Profile& b) {
  const Mode mode = b.spec.step.mode;
  return a.spec.step.mode == Mode::kInference &&
         (mode == Mode::kStep || mode == Mode::kForwardBackward) && a.status == Status::kOk &&
         b.status == Status::kOk && same_but(a.spec.step, b.spec.step, {"mode"}) &&
         a.device == b.device;
}

// True if shares of recorded times say something: the checker does not doubt those times.
bool has_shares(std::span<const Verdict> verdicts) {
  return std::ranges::all_of(verdicts,
                             [](const Verdict& v) { return v.severity == Severity::kNote; });
}

// Compares the FLOPs of two profiles, which hold whatever the recorded times are worth.
std::string work_note(const ProfiledCell& inference, const ProfiledCell& training) {
  const auto flops = [](const ProfiledCell& cell) {
    return passes_of(cell).at("all").product_flops;
  };
  return fmt::format(
      "{}: matrix products have FLOPs {:.2f}x those of {} (two more products per product for the "
      "gradients); shares of time are not compared, since the checker doubts the recorded times",
      label_of(training.profile), ratio(flops(training), flops(inference)),
      name_of(inference.profile.spec.step.mode));
}

// Says why the share of matrix products is another one in training than in inference: both parts of
// the fraction, from the two profiles.
std::string share_note(const ProfiledCell& inference, const ProfiledCell& training) {
  const auto before = passes_of(inference), after = passes_of(training);
  const auto part = [](const std::map<std::string, Pass>& passes, std::string_view phase) {
    const auto found = passes.find(std::string(phase));
    return found == passes.end() ? Pass() : found->second;
  };
  const Pass a = part(before, "all"), b = part(after, "all");
  const Pass backward = part(after, name_of(Phase::kBackward));
  const Pass optimizer = part(after, name_of(Phase::kOptimizer));
  return fmt::format(
      "{}: matrix products take {:.1f} % of the kernels' time in {} and {:.1f} % in {}. Their time "
      "grows {:.2f}x (FLOPs {:.2f}x: two more products per product for the gradients), all other "
      "kernels {:.2f}x ({:.3f} to {:.3f} ms, of which backward {:.3f} and optimizer {:.3f} ms)",
      label_of(training.profile), percent_of(a.product_ms, a.ms),
      name_of(inference.profile.spec.step.mode), percent_of(b.product_ms, b.ms),
      name_of(training.profile.spec.step.mode), ratio(b.product_ms, a.product_ms),
      ratio(b.product_flops, a.product_flops), ratio(b.ms - b.product_ms, a.ms - a.product_ms),
      a.ms - a.product_ms, b.ms - b.product_ms, backward.ms - backward.product_ms,
      optimizer.ms - optimizer.product_ms);
}

}  // namespace

std::string label_of(const Profile& p) {
  return label_of(p.spec.step);
}

Table pass_table(std::span<const ProfiledCell> cells) {
  const Fields<PassRow> fields = pass_fields();
  Table table{.name = "passes",
              .title = "Passes: share of matrix products, and the kernels that take most",
              .columns = fields.columns()};
  const std::vector<std::vector<Verdict>> verdicts = judge_profiles(cells);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const ProfiledCell& cell = cells[i];
    if (cell.profile.status != Status::kOk) {
      table.add_row(fields.row({cell.profile, "all", nullptr, {}, {}, {}}));
      continue;
    }
    const auto passes = passes_of(cell);
    for (std::string_view name :
         {name_of(Phase::kForward), name_of(Phase::kRecompute), name_of(Phase::kBackward),
          name_of(Phase::kOptimizer), name_of(Phase::kCommunication), std::string_view("all")}) {
      const auto found = passes.find(std::string(name));
      if (found == passes.end()) continue;
      const Pass& pass = found->second;
      table.add_row(fields.row({cell.profile, found->first, &pass, longest_of_all(pass),
                                longest(pass.others), summary_of(verdicts[i])}));
    }
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    for (std::size_t j = 0; j < cells.size(); ++j) {
      if (!are_inference_and_training(cells[i].profile, cells[j].profile)) continue;
      table.notes.push_back(has_shares(verdicts[i]) && has_shares(verdicts[j])
                                ? share_note(cells[i], cells[j])
                                : work_note(cells[i], cells[j]));
    }
  }
  show_unusual(table);
  return table;
}

namespace {

// A profiled step and the figures that its clocks give: kernels' own times, which recording does
// not widen, in the span and the wall of plain steps.
struct ClockRow {
  const Profile& p;
  const StepWork& w;
  double recorded_wall_ms;
  std::optional<double> gaps_ms;  // plain_gaps_ms()
  std::optional<Communication> communication;
  std::string verdict;

  double outside_ms() const { return p.plain.wall_ms - p.plain.span_ms; }
  double recorded_outside_ms() const { return recorded_wall_ms - w.span_ms; }
};

ClockRow clocks_of(const ProfiledCell& cell, std::span<const Verdict> verdicts) {
  const Profile& p = cell.profile;
  double wall = 0;
  for (const ProfiledStep& s : p.steps) wall += static_cast<double>(s.end_ns - s.start_ns) * 1e-6;
  wall /= static_cast<double>(p.steps.size());
  return {p, cell.work, wall, plain_gaps_ms(cell), communication_of(p), summary_of(verdicts)};
}

// Returns the columns of clocks; those of communication are hidden unless `has_collectives`.
Fields<ClockRow> clock_fields(bool has_collectives) {
  using C = const ClockRow&;
  const auto ms = [](const char* name, const char* title, const char* text) {
    return real_column(name, title, "ms", 3, text);
  };
  const auto communication = [&](const char* name, const char* title, const char* text) {
    return has_collectives ? ms(name, title, text) : data_only(ms(name, title, text));
  };
  Fields<ClockRow> out{};
  out.add(axis_columns(), [](C c) { return &c.p.spec.step; });
  out.add(Fields<ClockRow>{
      {ms("plain_wall_ms", "wall", "call to end of a step that nobody records; median"),
       [](C c) { return c.p.plain.wall_ms; }},
      {ms("plain_issue_ms", "issue",
          "host time of such a call; empty where kernels run inside the calls, as on a CPU"),
       [](C c) { return when(c.p.is_asynchronous, c.p.plain.issue_ms); }},
      {ms("plain_span_ms", "span", "first kernel's start to last one's end of such a step; median"),
       [](C c) { return c.p.plain.span_ms; }},
      {ms("busy_ms", "busy", "in which kernels ran, of profiled steps; mean"),
       [](C c) { return c.w.busy_ms; }},
      {ms("gaps_ms", "gaps", "what busy leaves of the span"),
       [](C c) { return or_null(c.gaps_ms); }},
      {communication("communication_ms", "collectives", "in which they ran, of profiled steps"),
       [](C c) { return c.communication ? Json(c.communication->ms) : Json(); }},
      {communication("exposed_ms", "exposed",
                     "of that, while no other kernel ran; by spans, each of a kernel that runs "
                     "alone: what the span is longer than all other kernels"),
       [](C c) { return c.communication ? Json(c.communication->exposed_ms) : Json(); }},
      {ms("outside_ms", "outside", "of the wall, before the first and after the last kernel"),
       &ClockRow::outside_ms},
      {timed(col::busy_percent("of the plain wall")),
       [](C c) { return percent_of(c.w.busy_ms, c.p.plain.wall_ms); }},
      {ms("wall_ms", "wall, profiled", "of the profiled steps; mean"), &ClockRow::recorded_wall_ms},
      {ms("span_ms", "span, profiled", "likewise"), [](C c) { return c.w.span_ms; }},
      {ms("recorded_gaps_ms", "gaps, profiled", "likewise, with what recording adds"),
       [](C c) { return c.w.gaps_ms; }},
      {timed(
           real_column("cost_percent", "cost", "%", 1, "profiled wall over plain wall, less one")),
       [](C c) { return percent_of(c.recorded_wall_ms - c.p.plain.wall_ms, c.p.plain.wall_ms); }},
      {verdict_column(), &ClockRow::verdict},
      {data_only(ms("recorded_outside_ms", "", "of the profiled wall")),
       &ClockRow::recorded_outside_ms},
      {data_only(real_column("identity_error_ms", "", "ms", 6,
                             "of the profiled steps: wall - outside - gaps - busy - interrupted")),
       [](C c) {
         return c.recorded_wall_ms - c.recorded_outside_ms() - c.w.gaps_ms - c.w.busy_ms -
                c.w.interrupted_ms;
       }},
      {data_only(ms("interrupted_ms", "",
                    "of the profiled span: what single launches were held up for; part of "
                    "neither busy nor these gaps")),
       [](C c) { return c.w.interrupted_ms; }}});
  out.add(data_only(col::recorded_by("the instrument of the profiled steps")),
          [](C c) { return c.p.source; });
  return out.add(host_columns(), [](C c) { return &c.p.plain.host; });
}

// Notes that the host issues kernels more slowly than they run.
std::string waiting_note(const ClockRow& row) {
  return fmt::format(
      "{}: kernels run for {:.0f} % of the wall; the rest is the host issuing them ({:.3f} ms "
      "for {} launches), so this time says little about the device",
      label_of(row.p), percent_of(row.w.busy_ms, row.p.plain.wall_ms), row.p.plain.issue_ms,
      row.p.launches.size() / row.p.steps.size());
}

}  // namespace

std::optional<double> plain_gaps_ms(const ProfiledCell& cell) {
  const double gaps = cell.profile.plain.span_ms - cell.work.busy_ms;
  return gaps >= 0 ? std::optional(gaps) : std::nullopt;
}

LeftOfSpan left_of_span(const ProfiledCell& cell) {
  const auto ms = [](double value) { return Quantity::exact(value, {}); };
  return {ms(cell.profile.plain.span_ms), ms(cell.work.span_ms), ms(cell.work.gaps_ms),
          ms(cell.work.interrupted_ms)};
}

Table clock_table(std::span<const ProfiledCell> cells) {
  const bool has_collectives = std::ranges::any_of(
      cells, [](const ProfiledCell& cell) { return communication_of(cell.profile).has_value(); });
  const Fields<ClockRow> fields = clock_fields(has_collectives);
  Table table{.name = "clocks", .title = "One step by several clocks", .columns = fields.columns()};
  const std::vector<std::vector<Verdict>> verdicts = judge_profiles(cells);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Profile& p = cells[i].profile;
    if (p.status != Status::kOk || p.steps.empty()) continue;
    const ClockRow row = clocks_of(cells[i], verdicts[i]);
    table.add_row(fields.row(row));
    if (p.is_asynchronous && row.w.busy_ms < 0.5 * p.plain.wall_ms) {
      table.notes.push_back(waiting_note(row));
    }
    for (const Verdict& v : verdicts[i]) table.notes.push_back(verdict_line(label_of(p), v));
  }
  table.notes.push_back(
      "time of a step (wall) = kernels (busy) + gaps between them + start and end (outside). "
      "Kernels are timed in separate, recorded steps; where those took longer than the plain ones, "
      "there is no figure for gaps");
  show_unusual(table);
  return table;
}

}  // namespace tracestep
