// The tables over several profiled cells: passes and clocks.
#include <algorithm>
#include <map>

#include "lab/measure/statistics.h"
#include "lab/profile/tables.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

double percent(double part, double whole) {
  return whole > 0.0 ? 100.0 * part / whole : 0.0;
}

double ratio(double a, double b) {
  return b > 0.0 ? a / b : 0.0;
}

std::vector<Column> cell_label_columns() {
  return {text_column("size"),      int_column("context"), text_column("mode"),
          text_column("precision"), text_column("ops"),    text_column("attention")};
}

std::vector<Json> cell_label(const Profile& p) {
  const StepSpec& s = p.spec.step;
  return {s.model.name,     s.shape.context, name_of(s.mode),
          p.spec.precision, name_of(s.ops),  name_of(s.attention)};
}

// Time of a pass, split by what multiplies matrices, and by kernel.
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

void add_kernel(std::vector<Json>& row, const std::optional<NamedKernel>& kernel, double pass_ms) {
  if (!kernel) {
    row.insert(row.end(), 4, Json());
    return;
  }
  row.push_back(kernel->first);
  row.push_back(percent(kernel->second.ms, pass_ms));
  row.push_back(kernel->second.launches);
  row.push_back(kernel->second.ms);
}

std::map<std::string, Pass> passes_of(const ProfiledCell& cell) {
  std::map<std::string, Pass> out;
  for (const Work& w : cell.work.rows) {
    if (w.has_node) out[w.phase].add(w);
    out["all"].add(w);
  }
  return out;
}

bool same_but_mode(const Profile& a, const Profile& b) {
  const StepSpec &s = a.spec.step, &t = b.spec.step;
  return s.model.name == t.model.name && s.shape.batch == t.shape.batch &&
         s.shape.context == t.shape.context && s.ops == t.ops && s.attention == t.attention &&
         a.spec.precision == b.spec.precision && a.device == b.device;
}

// Why the share of matrix products is another one in training than in inference: both parts of the
// fraction, from the two profiles.
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
      label_of(training.profile), percent(a.product_ms, a.ms),
      name_of(inference.profile.spec.step.mode), percent(b.product_ms, b.ms),
      name_of(training.profile.spec.step.mode), ratio(b.product_ms, a.product_ms),
      ratio(b.product_flops, a.product_flops), ratio(b.ms - b.product_ms, a.ms - a.product_ms),
      a.ms - a.product_ms, b.ms - b.product_ms, backward.ms - backward.product_ms,
      optimizer.ms - optimizer.product_ms);
}

}  // namespace

std::string label_of(const Profile& p) {
  const StepSpec& s = p.spec.step;
  return fmt::format("{} context {} {} {} {} {}", s.model.name, s.shape.context, name_of(s.mode),
                     p.spec.precision, name_of(s.ops), name_of(s.attention));
}

Table pass_table(std::span<const ProfiledCell> cells) {
  Table table{.name = "passes",
              .title = "Passes: share of matrix products, and the kernels that take most"};
  table.columns = cell_label_columns();
  const auto add = [&](Column c) { table.columns.push_back(std::move(c)); };
  add(text_column("pass", "", "a phase, or all of the step"));
  add(text_column("status"));
  add(real_column("ms", "kernels", "ms", 3, "sum of the kernels' times in one step"));
  add(real_column("launches", "launches", "", 0, "in one step"));
  add(real_column("products_percent", "products", "%", 1,
                  "matrix products' share of the kernels' time"));
  add(data_only(real_column("products_ms", "", "ms", 4)));
  add(text_column("top_kernel", "top kernel"));
  add(real_column("top_percent", "share", "%", 1, "of the pass"));
  add(real_column("top_launches", "launches", "", 0, "in one step"));
  add(data_only(real_column("top_ms", "", "ms", 4)));
  add(text_column("top_other_kernel", "top other kernel", "that multiplies no matrices"));
  add(real_column("top_other_percent", "share", "%", 1, "of the pass"));
  add(real_column("top_other_launches", "launches", "", 0, "in one step"));
  add(data_only(real_column("top_other_ms", "", "ms", 4)));
  for (const ProfiledCell& cell : cells) {
    if (cell.profile.status != "ok") {
      std::vector<Json> row = cell_label(cell.profile);
      row.push_back("all");
      row.push_back(cell.profile.status);
      row.resize(table.columns.size());
      table.add_row(std::move(row));
      continue;
    }
    const auto passes = passes_of(cell);
    for (std::string_view name :
         {name_of(Phase::kForward), name_of(Phase::kBackward), name_of(Phase::kOptimizer),
          name_of(Phase::kCommunication), std::string_view("all")}) {
      const auto found = passes.find(std::string(name));
      if (found == passes.end()) continue;
      const Pass& pass = found->second;
      std::vector<Json> row = cell_label(cell.profile);
      row.insert(row.end(), {name, cell.profile.status, pass.ms, pass.launches,
                             percent(pass.product_ms, pass.ms), pass.product_ms});
      add_kernel(row, longest_of_all(pass), pass.ms);
      add_kernel(row, longest(pass.others), pass.ms);
      table.add_row(std::move(row));
    }
  }
  for (const ProfiledCell& a : cells) {
    if (a.profile.spec.step.mode != Mode::kInference || a.profile.status != "ok") continue;
    for (const ProfiledCell& b : cells) {
      const Mode mode = b.profile.spec.step.mode;
      const bool is_training = mode == Mode::kStep || mode == Mode::kForwardBackward;
      if (is_training && b.profile.status == "ok" && same_but_mode(a.profile, b.profile)) {
        table.notes.push_back(share_note(a, b));
      }
    }
  }
  return table;
}

Table clock_table(std::span<const ProfiledCell> cells) {
  Table table{.name = "clocks", .title = "One step by four clocks"};
  table.columns = cell_label_columns();
  const auto ms = [&](const char* name, const char* title, const char* text) {
    table.columns.push_back(real_column(name, title, "ms", 3, text));
  };
  ms("plain_wall_ms", "wall", "call to end of a step that nobody records; median");
  ms("plain_issue_ms", "issue", "host time of such a call; on a CPU wall less busy");
  ms("plain_span_ms", "span", "first kernel's start to last one's end of such a step; median");
  ms("wall_ms", "wall, profiled", "the same of the profiled steps; mean");
  ms("span_ms", "span, profiled", "likewise");
  ms("busy_ms", "busy", "sum of the kernels' times");
  ms("gaps_ms", "gaps", "in the span, between kernels");
  ms("outside_ms", "outside", "of the profiled wall, before the first and after the last kernel");
  table.columns.push_back(real_column("busy_percent", "busy of wall", "%", 1, "of the plain wall"));
  table.columns.push_back(
      real_column("cost_percent", "cost", "%", 1, "profiled wall over plain wall, less one"));
  table.columns.push_back(
      data_only(real_column("identity_error_ms", "", "ms", 6, "wall - outside - gaps - busy")));
  for (const ProfiledCell& cell : cells) {
    const Profile& p = cell.profile;
    if (p.status != "ok" || p.steps.empty()) continue;
    double wall = 0;
    for (const ProfiledStep& s : p.steps) wall += static_cast<double>(s.end_ns - s.start_ns) * 1e-6;
    wall /= static_cast<double>(p.steps.size());
    const StepWork& w = cell.work;
    const double outside = wall - w.span_ms;
    // Where kernels run inside the calls, issuing is what is left of the wall without them.
    const double issue =
        p.is_asynchronous ? p.plain.issue_ms : std::max(0.0, p.plain.wall_ms - w.busy_ms);
    std::vector<Json> row = cell_label(p);
    row.insert(row.end(), {p.plain.wall_ms, issue, p.plain.span_ms, wall, w.span_ms, w.busy_ms,
                           w.gaps_ms, outside, percent(w.busy_ms, p.plain.wall_ms),
                           percent(wall - p.plain.wall_ms, p.plain.wall_ms),
                           wall - outside - w.gaps_ms - w.busy_ms + w.overlap_ms});
    table.add_row(std::move(row));
    if (p.is_asynchronous && w.busy_ms < 0.5 * p.plain.wall_ms) {
      table.notes.push_back(fmt::format(
          "{}: kernels run for {:.0f} % of the wall; the rest is the host issuing them ({:.3f} ms "
          "for {} launches), so this time says little about the device",
          label_of(p), percent(w.busy_ms, p.plain.wall_ms), issue,
          p.launches.size() / p.steps.size()));
    }
  }
  table.notes.push_back(
      "wall = outside + span, span = busy + gaps; the sum of kernels, the span and the wall are "
      "three figures, and a profiled wall is not a plain one");
  return table;
}

}  // namespace tracestep
