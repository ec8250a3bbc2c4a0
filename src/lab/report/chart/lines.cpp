// Lines over a column, or over the items of lists: one line per series and y column.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "lab/report/chart/chart_rows.h"
#include "lab/report/chart/drawings.h"
#include "lab/report/chart/frame.h"

namespace tracestep {
namespace {

struct Point {
  double x = 0, y = 0;
  std::optional<Whisker> interval = {};
};
struct Series {
  std::string name;
  std::vector<Point> points;
};

constexpr double kHeight = 250, kNarrowHeight = 210;
constexpr std::size_t kMarkedPoints = 24;  // a line with more has no marks
constexpr std::size_t kPointedAt = 150;    // and with more no notes

// "tiny step", "width 64": what tells this row's line from others.
std::string series_name(const Chart& chart, const ChartRows& rows, std::size_t row) {
  std::string out;
  for (const std::string& name : names_of(chart, "series")) {
    const Column* column = rows.column(name);
    if (!out.empty()) out += ' ';
    if (column != nullptr && column->kind != ColumnKind::kText) out += title_of(*column) + ' ';
    out += rows.text(row, name);
  }
  return out;
}

class Lines {
 public:
  Lines(const Chart& chart, const ChartRows& rows)
      : list_(text_option(chart, "list")),
        is_log_x_(is_logarithmic(chart, 'x')),
        is_log_y_(is_logarithmic(chart, 'y')) {
    const std::vector<std::string> ys = names_of(chart, "y");
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::string name = series_name(chart, rows, r);
      if (!list_.empty()) {
        double x = 0;
        for (double y : rows.list(r, list_)) add(name, {++x, y});
        continue;
      }
      for (const std::string& column : ys) {
        const auto x = rows.number(r, text_option(chart, "x")), y = rows.number(r, column);
        if (!x || !y) continue;
        const Column* found = rows.column(column);
        const bool says_column = ys.size() > 1 || name.empty();
        add(says_column ? name + (name.empty() ? "" : " ") + title_of(*found) : name,
            {*x, *y, whisker_of(chart, rows, r, column)});
      }
    }
    for (Series& s : series_) std::ranges::stable_sort(s.points, {}, &Point::x);
  }

  bool empty() const { return series_.empty(); }
  const std::vector<Series>& series() const { return series_; }

  // Contexts and other values on a logarithmic axis are its ticks.
  Axis x_axis(std::string name, const Box& box) const {
    const Scale::Range range = range_of([](const Point& p) { return std::pair{p.x, p.x}; });
    const Scale scale(range, {box.left + 8, box.right - 8}, is_log_x_);
    Axis out{std::move(name), scale, scale.ticks(tick_count(box.right - box.left, 60))};
    std::set<double> values;
    for (const Series& s : series_) {
      for (const Point& p : s.points) values.insert(p.x);
    }
    if (is_log_x_ && values.size() <= 12) {
      out.ticks.clear();
      for (double v : values) {
        out.ticks.push_back({v});
        out.labels.push_back(v == std::floor(v) ? fmt::format("{:.0f}", v)
                                                : tick_text(v, AxisUnit::kNumber));
      }
    }
    return out;
  }

  Axis y_axis(std::string name, const Box& box, AxisUnit unit) const {
    Scale::Range range = range_of([](const Point& p) {
      return p.interval ? std::pair{std::min(p.interval->low, p.y), std::max(p.interval->high, p.y)}
                        : std::pair{p.y, p.y};
    });
    if (is_log_y_) {
      range = {range.low / 1.15, range.high * 1.15};
    } else {
      range = {std::min(0.0, range.low), range.high > 0 ? range.high * 1.05 : 1.0};
    }
    const Scale scale(range, {box.bottom, box.top}, is_log_y_, unit);
    return {std::move(name), scale, scale.ticks(tick_count(box.bottom - box.top, 40)), unit};
  }

 private:
  void add(const std::string& name, const Point& point) {
    if ((is_log_x_ && point.x <= 0) || (is_log_y_ && point.y <= 0)) return;
    auto found = std::ranges::find(series_, name, &Series::name);
    if (found == series_.end()) found = series_.insert(series_.end(), {name, {}});
    found->points.push_back(point);
    // An interval that reaches zero has no place on a logarithmic axis.
    auto& interval = found->points.back().interval;
    if (is_log_y_ && interval && interval->low <= 0) interval.reset();
  }

  template <class Of>
  Scale::Range range_of(Of of) const {
    Scale::Range out{1e300, -1e300};
    for (const Series& s : series_) {
      for (const Point& p : s.points) {
        const auto [low, high] = of(p);
        out = {std::min(out.low, low), std::max(out.high, high)};
      }
    }
    return out;
  }

  std::string list_;
  bool is_log_x_, is_log_y_;
  std::vector<Series> series_;
};

void draw_series(Svg& svg, const Series& series, std::size_t index, const Axis& x, const Axis& y,
                 const Column* column) {
  std::string d;
  for (const Point& p : series.points) {
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x.scale.at(p.x), y.scale.at(p.y));
  }
  const bool is_dashed = index >= kChartColours;
  svg.path(fmt::format("line {}{}", stroke_class(index), is_dashed ? " dashed" : ""), d);
  if (series.points.size() > kPointedAt) return;
  const bool is_marked = series.points.size() <= kMarkedPoints;
  for (const Point& p : series.points) {
    const double cx = x.scale.at(p.x), cy = y.scale.at(p.y);
    std::string tip =
        fmt::format("{}\n{} {:g}: {}", series.name, x.name, p.x, labelled(p.y, column));
    if (p.interval) {
      svg.line("whisker", cx, y.scale.at(p.interval->low), cx, y.scale.at(p.interval->high));
      tip += fmt::format(" ({} to {})", labelled(p.interval->low, column),
                         labelled(p.interval->high, column));
    }
    svg.circle(is_marked ? fill_class(index) : "ghost", cx, cy, is_marked ? 3.5 : 5, tip);
  }
}

}  // namespace

std::string draw_lines(const Chart& chart, std::span<const Table> tables, const ChartLook& look) {
  const ChartRows rows(chart, tables, chart.table);
  const Lines lines(chart, rows);
  if (lines.empty()) return {};
  const bool is_list = chart.options.find("list") != nullptr;
  const std::vector<std::string> ys = names_of(chart, "y");
  const Column times{.name = "time", .unit = "ms", .kind = ColumnKind::kReal};
  const Column* column = is_list ? &times : rows.column(ys.front());
  const Box box = plot_box(look, look.width < 500 ? kNarrowHeight : kHeight);
  const Axis x = lines.x_axis(
      is_list ? text_option(chart, "x_title") : axis_name(rows.column(text_option(chart, "x"))),
      box);
  const Axis y = lines.y_axis(name_of_all(ys, column), box, unit_of(column));
  Svg svg;
  draw_title(svg, chart, look);
  draw_axes(svg, box, x, y);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < lines.series().size(); ++i) {
    draw_series(svg, lines.series()[i], i, x, y, column);
    names.push_back(lines.series()[i].name);
  }
  const double end = draw_legend(svg, names, look, box.bottom + kBelowPlot);
  return svg.finish(look.width, end, chart.title);
}

}  // namespace tracestep
