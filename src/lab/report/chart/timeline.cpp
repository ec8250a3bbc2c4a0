// Live bytes through a step: categories on top of each other, kernel by kernel. The plot is an SVG
// inside the drawing whose x axis counts kernels, so that a page can zoom by its viewBox.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lab/report/chart/chart_rows.h"
#include "lab/report/chart/drawings.h"
#include "lab/report/chart/frame.h"

namespace tracestep {
namespace {

constexpr double kTimelineHeight = 270, kNarrowTimelineHeight = 220, kPhaseRow = 18;
constexpr double kUnits = 1000;           // of the plot's y axis
constexpr std::size_t kMostSteps = 1500;  // along its x axis
// The least width, in pixels, at which a phase shows its name.
constexpr double kLeastPhaseWidth = 62;

struct Category {
  std::string column, title;
};

// Returns the rows that are drawn: all, or of each stretch the fullest, so that no peak is lost.
std::vector<std::size_t> drawn_rows(const ChartRows& rows) {
  const std::size_t steps = std::min(rows.size(), kMostSteps);
  std::vector<std::size_t> out;
  for (std::size_t s = 0; s < steps; ++s) {
    const std::size_t begin = s * rows.size() / steps, end = (s + 1) * rows.size() / steps;
    std::size_t best = begin;
    for (std::size_t r = begin; r < end; ++r) {
      if (rows.number(r, "total_bytes") > rows.number(best, "total_bytes")) best = r;
    }
    out.push_back(best);
  }
  return out;
}

std::vector<Category> categories_of(const ChartRows& rows) {
  std::vector<Category> out;
  for (const Column& column : rows.columns()) {
    const bool is_sum = column.name == "total_bytes" || column.name == "measured_bytes";
    if (column.kind == ColumnKind::kBytes && !is_sum) {
      out.push_back({column.name, title_of(column)});
    }
  }
  return out;
}

// Returns the path of a closed outline from the floor along `heights`, in steps of one.
std::string outline(std::span<const double> heights) {
  const auto row = [](double height) { return std::lround(kUnits * (1 - height)); };
  long at = row(heights.front());
  std::string out = fmt::format("M0 {:.0f}V{}", kUnits, at);
  long run = 0;
  for (double height : heights) {
    const long next = row(height);
    if (next != at) {
      out += fmt::format("h{}V{}", run, next);
      at = next;
      run = 0;
    }
    ++run;
  }
  return out + fmt::format("h{}V{:.0f}Z", run, kUnits);
}

// A phase, which is drawn from its first kernel on until the next one begins.
struct Stretch {
  std::string phase;
  std::size_t begin = 0;  // an index of what is drawn
};

// Returns one stretch for each phase, from where the phase begins, though phases mix. Collectives,
// and nodes that are computed again, belong to the phase around them.
std::vector<Stretch> stretches_of(const std::vector<std::string>& phases) {
  std::vector<Stretch> out;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const bool is_of_step =
        phases[i] == "forward" || phases[i] == "backward" || phases[i] == "optimizer";
    if (!is_of_step || std::ranges::count(out, phases[i], &Stretch::phase) > 0) continue;
    out.push_back({phases[i], out.empty() ? 0 : i});
  }
  return out;
}

struct Timeline {
  const ChartRows& rows;
  std::vector<std::size_t> drawn;
  std::vector<Category> categories;
  std::size_t peak = 0;  // an index of `drawn`
  double high = 1;       // bytes at the top of the plot
  double limit = 0;      // bytes; 0: none

  Timeline(const ChartRows& all, double bytes_of_limit)
      : rows(all), drawn(drawn_rows(all)), categories(categories_of(all)), limit(bytes_of_limit) {
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      if (bytes(i) > bytes(peak)) peak = i;
    }
    high = std::max(1.0, std::max(bytes(peak), limit) * 1.04);
  }
  double bytes(std::size_t i) const { return rows.number(drawn[i], "total_bytes").value_or(0); }
  std::vector<Stretch> stretches() const {
    std::vector<std::string> phases;
    for (const std::size_t row : drawn) phases.push_back(rows.text(row, "phase"));
    return stretches_of(phases);
  }
};

// Draws areas from the sum of all categories down to the first, each over those drawn before.
void draw_areas(Svg& svg, const Timeline& t, const Box& box) {
  svg.open("svg", fmt::format("class=\"plot\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
                              "viewBox=\"0 0 {} {:.0f}\" preserveAspectRatio=\"none\"",
                              box.left, box.top, box.right - box.left, box.bottom - box.top,
                              t.drawn.size(), kUnits));
  std::vector<std::string> outlines;
  std::vector<double> heights(t.drawn.size(), 0.0);
  for (const Category& category : t.categories) {
    for (std::size_t i = 0; i < t.drawn.size(); ++i) {
      heights[i] += t.rows.number(t.drawn[i], category.column).value_or(0) / t.high;
    }
    outlines.push_back(outline(heights));
  }
  for (std::size_t c = outlines.size(); c-- > 0;) svg.path(fill_class(c), outlines[c]);
  for (const Stretch& stretch : t.stretches()) {
    const auto x = static_cast<double>(stretch.begin);
    if (stretch.begin > 0) svg.line("divider", x, 0, x, kUnits);
  }
  svg.close();
}

Axis bottom_axis(const Chart& chart, const ChartRows& rows, const Box& box) {
  constexpr double kPixelsOfTick = 70;
  // Kernels are counted from 1, also where one stands for several.
  const Scale kernels({0, static_cast<double>(rows.size())}, {box.left, box.right}, false);
  const Json* const row = chart.options.find("row");
  return {row == nullptr ? "kernel, in the order of the program" : row->as_string(), kernels,
          kernels.ticks(tick_count(box.right - box.left, kPixelsOfTick))};
}

// Names the categories that an eye can see; the others are in the notes at the pointer.
std::vector<std::string> names_of_seen(const Timeline& t) {
  constexpr double kSeen = 0.01;  // of the height
  std::vector<std::string> out;
  for (const Category& c : t.categories) {
    double most = 0;
    for (std::size_t row : t.drawn) most = std::max(most, t.rows.number(row, c.column).value_or(0));
    out.push_back(most > kSeen * t.high ? c.title : "");
  }
  return out;
}

void draw_phase_names(Svg& svg, const Timeline& t, const Box& box, const Scale& x) {
  const std::vector<Stretch> stretches = t.stretches();
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const std::size_t end = i + 1 < stretches.size() ? stretches[i + 1].begin : t.drawn.size();
    const double from = x.at(static_cast<double>(stretches[i].begin));
    const double to = x.at(static_cast<double>(end));
    if (to - from > kLeastPhaseWidth) {
      svg.text("soft", (from + to) / 2, box.top - 7, stretches[i].phase, Anchor::kMiddle);
    }
  }
}

void draw_peak(Svg& svg, const Timeline& t, const Box& box, const Scale& x, const Scale& y) {
  const double px = x.at(static_cast<double>(t.peak) + 0.5), py = y.at(t.bytes(t.peak));
  const bool is_right = px > (box.left + box.right) / 2;
  svg.circle("mark", px, py, 3.5);
  svg.text("over", px + (is_right ? -8 : 8), py + 4,
           "peak " + labelled(t.bytes(t.peak), t.rows.column("total_bytes")),
           is_right ? Anchor::kEnd : Anchor::kStart);
}

void draw_limit(Svg& svg, const Timeline& t, const Box& box, const Scale& y) {
  if (t.limit <= 0) return;
  const double at = y.at(t.limit);
  svg.line("card", box.left, at, box.right, at);
  svg.text("soft over", box.left + 6, at + 14, "limit " + tick_text(t.limit, AxisUnit::kBytes));
}

double limit_of(const Chart& chart) {
  const Json* const found = chart.options.find("limit");
  return found == nullptr ? 0 : found->as_double();
}

}  // namespace

std::string draw_timeline(const Chart& chart, std::span<const Table> tables,
                          const ChartLook& look) {
  const ChartRows rows(chart, tables, chart.table);
  if (rows.empty()) return {};
  const Timeline t(rows, limit_of(chart));
  Box box = plot_box(look, look.width < 500 ? kNarrowTimelineHeight : kTimelineHeight);
  box.top += kPhaseRow;
  box.bottom += kPhaseRow;
  const Scale bytes({0, t.high}, {box.bottom, box.top}, false, AxisUnit::kBytes);
  const Scale places({0, static_cast<double>(t.drawn.size())}, {box.left, box.right}, false);
  Svg svg;
  const Axis y{"live bytes", bytes, bytes.ticks(tick_count(box.bottom - box.top, 40)),
               AxisUnit::kBytes};
  Box named = box;
  named.top -= kPhaseRow;  // the axis' name stands above the names of phases
  svg.open("g", "class=\"whole\"");
  draw_bottom_axis(svg, box, bottom_axis(chart, rows, box));
  svg.close();
  draw_left_axis(svg, box, y);
  draw_areas(svg, t, box);  // over the grid
  svg.open("g", "class=\"whole\"");
  draw_phase_names(svg, t, box, places);
  draw_limit(svg, t, box, bytes);
  draw_peak(svg, t, box, places, bytes);
  svg.close();
  svg.text("name", 8, named.top - 9, y.name);
  return svg.finish(look.width, draw_legend(svg, names_of_seen(t), look, box.bottom + kBelowPlot),
                    chart.title);
}

}  // namespace tracestep
