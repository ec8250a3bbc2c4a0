// The roofline: what each kernel reaches, under the machine's ceilings. Area is time.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lab/report/chart/chart_rows.h"
#include "lab/report/chart/drawings.h"
#include "lab/report/chart/frame.h"

namespace tracestep {
namespace {

constexpr double kRooflineHeight = 300, kNarrowRooflineHeight = 260;
constexpr double kLeastShare = 0.001;  // of the kernels' time
constexpr std::size_t kNamed = 3;      // kernels, the longest ones

struct Kernel {
  double intensity = 0, gflops = 0, ms = 0;
  std::string name, phase, note;
};
struct Ceiling {
  std::string name;
  double gflops = 0;
};
struct Roof {
  double gb_per_s = 0;
  std::vector<Ceiling> ceilings;  // the highest first
  double highest() const { return ceilings.front().gflops; }
};

std::vector<Kernel> kernels_of(const Chart& chart, const ChartRows& rows) {
  std::vector<Kernel> out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double flops = rows.number(r, "flops").value_or(0);
    const double bytes = rows.number(r, "bytes").value_or(0);
    const double ms = rows.number(r, "ms").value_or(0);
    const std::string op = rows.text(r, "op");
    if (flops <= 0 || bytes <= 0 || ms <= 0 || op.empty()) continue;
    Kernel k{.intensity = flops / bytes,
             .gflops = flops / ms * 1e-6,
             .ms = ms,
             .name = op + " of " + rows.text(r, "component"),
             .phase = rows.text(r, text_option(chart, "series")),
             .note = {}};
    k.note = fmt::format("{} of {}, {}\n{:.4g} FLOPs per byte, {:.4g} GFLOP/s\n{:.4g} ms", op,
                         rows.text(r, "component"), k.phase, k.intensity, k.gflops, ms);
    if (const auto share = rows.number(r, "share_percent")) {
      k.note += fmt::format(", {:.4g} % of the step", *share);
    }
    if (const auto percent = rows.number(r, "roof_percent")) {
      k.note += fmt::format(", {:.4g} % of its roof", *percent);
    }
    out.push_back(std::move(k));
  }
  std::ranges::stable_sort(out, std::greater(), &Kernel::ms);  // small ones lie on top
  double all = 0;
  for (const Kernel& k : out) all += k.ms;
  // Specks would stretch the axes.
  std::erase_if(out, [&](const Kernel& k) { return k.ms < kLeastShare * all; });
  return out;
}

// Returns the roof of a chart, without product ceilings of dtypes that the chart does not name.
Roof roof_of(const Chart& chart, const ChartRows& rows) {
  const std::vector<std::string> dtypes = names_of(chart, "dtypes");
  Roof out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string dtype = rows.text(r, "dtype");
    const bool is_named = std::ranges::find(dtypes, dtype) != dtypes.end();
    if (!dtype.empty() && !is_named) continue;
    const double value = rows.number(r, "value").value_or(0);
    const std::string unit = rows.text(r, "unit");
    if (unit == "GB/s" && out.gb_per_s == 0) out.gb_per_s = value;
    if (unit == "GFLOP/s" && value > 0) out.ceilings.push_back({rows.text(r, "ceiling"), value});
  }
  std::ranges::stable_sort(out.ceilings, std::greater(), &Ceiling::gflops);
  return out;
}

// Says the speeds of a group of ceilings: "1200 to 900 GFLOP/s: 3 ceilings".
std::string words_of(std::span<const Ceiling> group) {
  const bool is_large = group.front().gflops >= 1e4;
  const auto value = [&](const Ceiling& c) {
    return fmt::format("{:.4g}", is_large ? c.gflops * 1e-3 : c.gflops);
  };
  std::string out = value(group.back());
  if (value(group.front()) != out) out += " to " + value(group.front());
  out += is_large ? " TFLOP/s: " : " GFLOP/s: ";
  return out + (group.size() > 1 ? fmt::format("{} ceilings", group.size()) : group.front().name);
}

void draw_roof(Svg& svg, const Roof& roof, const Box& box, const Axis& x, const Axis& y) {
  const double start = std::max(x.scale.values().low, y.scale.values().low / roof.gb_per_s);
  const double knee = roof.highest() / roof.gb_per_s;
  svg.line("roof", x.scale.at(start), y.scale.at(start * roof.gb_per_s), x.scale.at(knee),
           y.scale.at(roof.highest()));
  for (const Ceiling& c : roof.ceilings) {
    svg.line("roof", x.scale.at(c.gflops / roof.gb_per_s), y.scale.at(c.gflops), box.right,
             y.scale.at(c.gflops));
  }
}

// Writes the values of the roof's lines, joined where they would overlap. Returns their heights.
std::vector<double> draw_roof_words(Svg& svg, const Roof& roof, const Box& box, const Axis& x,
                                    const Axis& y) {
  const double start = std::max(x.scale.values().low, y.scale.values().low / roof.gb_per_s);
  const double middle = std::sqrt(start * roof.highest() / roof.gb_per_s);
  svg.text("over", x.scale.at(middle) - 8, y.scale.at(middle * roof.gb_per_s) - 10,
           fmt::format("{:.4g} GB/s", roof.gb_per_s), Anchor::kEnd);
  std::vector<double> out;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= roof.ceilings.size(); ++i) {
    const auto height = [&](std::size_t c) { return y.scale.at(roof.ceilings[c].gflops); };
    if (i < roof.ceilings.size() && height(i) - height(begin) < 16) continue;
    svg.text("over", box.right, height(begin) - 7,
             words_of(std::span(roof.ceilings).subspan(begin, i - begin)), Anchor::kEnd);
    out.push_back(height(begin) - 7);
    begin = i;
  }
  return out;
}

// Writes the longest kernels' names beside their spots, at heights apart from those in `taken`.
void draw_names(Svg& svg, std::span<const Kernel> kernels, std::vector<double> taken,
                const Box& box, const Axis& x, const Axis& y) {
  constexpr double kLine = 14, kBeside = 16;
  std::vector<std::string> named;
  for (const Kernel& k : kernels) {
    if (std::ranges::find(named, k.name) != named.end()) continue;  // of another phase
    named.push_back(k.name);
    const double at = x.scale.at(k.intensity);
    const bool is_right = at > (box.left + box.right) / 2;
    double height = y.scale.at(k.gflops) + 4;
    for (bool moves = true; moves;) {
      moves = false;
      for (const double other : taken) {
        if (std::abs(other - height) >= kLine) continue;
        height = other + kLine;
        moves = true;
      }
    }
    taken.push_back(height);
    svg.text("over", at + (is_right ? -kBeside : kBeside), height, k.name,
             is_right ? Anchor::kEnd : Anchor::kStart);
  }
}

}  // namespace

std::string draw_roofline(const Chart& chart, std::span<const Table> tables,
                          const ChartLook& look) {
  const std::vector<Kernel> kernels = kernels_of(chart, ChartRows(chart, tables, chart.table));
  const Roof roof = roof_of(chart, ChartRows(chart, tables, text_option(chart, "ceilings")));
  if (kernels.empty() || roof.gb_per_s <= 0 || roof.ceilings.empty()) return {};
  Scale::Range xs{0.05, roof.highest() / roof.gb_per_s * 4}, ys{1e300, roof.highest()};
  for (const Kernel& k : kernels) {
    xs = {std::min(xs.low, k.intensity), std::max(xs.high, k.intensity)};
    ys = {std::min(ys.low, k.gflops), std::max(ys.high, k.gflops)};
  }
  xs = {xs.low / 1.5, xs.high * 1.5};
  ys = {std::min(ys.low, roof.gb_per_s * xs.low * 2) / 1.5, ys.high * 2};
  const Box box = plot_box(look, look.width < 500 ? kNarrowRooflineHeight : kRooflineHeight);
  const Scale across(xs, {box.left, box.right}, true), up(ys, {box.bottom, box.top}, true);
  const Axis x{"FLOPs per byte", across, across.ticks(tick_count(box.right - box.left, 80))};
  const Axis y{"GFLOP/s", up, up.ticks(tick_count(box.bottom - box.top, 45))};
  Svg svg;
  draw_axes(svg, box, x, y);
  draw_roof(svg, roof, box, x, y);
  std::vector<std::string> phases;
  for (const Kernel& k : kernels) {
    if (std::ranges::find(phases, k.phase) == phases.end()) phases.push_back(k.phase);
  }
  phases = in_order_of_phases(std::move(phases));
  for (const Kernel& k : kernels) {
    const auto phase =
        static_cast<std::size_t>(std::ranges::find(phases, k.phase) - phases.begin());
    svg.circle("spot " + fill_class(phase), across.at(k.intensity), up.at(k.gflops),
               3 + 11 * std::sqrt(k.ms / kernels.front().ms), k.note);
  }
  draw_names(svg, std::span(kernels).first(std::min(kNamed, kernels.size())),
             draw_roof_words(svg, roof, box, x, y), box, x, y);
  return svg.finish(look.width, draw_legend(svg, phases, look, box.bottom + kBelowPlot),
                    chart.title);
}

}  // namespace tracestep
