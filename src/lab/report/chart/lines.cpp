// Lines over a column, or over the items of lists: one line per series and y column.
#include <algorithm>
#include <array>
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

constexpr double kLinesHeight = 250, kNarrowLinesHeight = 210;
constexpr double kNameRow = 15, kNameMark = 16;  // of names at the ends of lines
constexpr std::size_t kMarkedPoints = 24;        // a line with more has no marks
constexpr std::size_t kPointedAt = 150;          // and with more no notes

// Says what tells this row's line from others: "tiny step", "width 64".
std::string series_name(std::span<const std::string> columns, const ChartRows& rows,
                        std::size_t row) {
  std::string out;
  for (const std::string& name : columns) {
    const Column* column = rows.column(name);
    if (!out.empty()) out += ' ';
    if (column != nullptr && column->kind != ColumnKind::kText) out += title_of(*column) + ' ';
    out += rows.text(row, name);
  }
  return out;
}

// Returns the columns that the chart names, and the keys in which rows of one line would differ.
std::vector<std::string> series_columns(const Chart& chart, const ChartRows& rows) {
  std::vector<std::string> out = names_of(chart, "series");
  RowGroups groups;
  for (std::size_t r = 0; r < rows.size(); ++r) groups[series_name(out, rows, r)].push_back(r);
  std::vector<std::string> known = out;
  known.push_back(text_option(chart, "x"));
  const std::vector<std::string> more = keys_apart(rows, groups, known);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

class Lines {
 public:
  Lines(const Chart& chart, const ChartRows& rows)
      : list_(text_option(chart, "list")),
        is_log_x_(is_logarithmic(chart, 'x')),
        is_log_y_(is_logarithmic(chart, 'y')) {
    const std::vector<std::string> ys = names_of(chart, "y");
    const std::vector<std::string> columns = series_columns(chart, rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::string name = series_name(columns, rows, r);
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
    for (Series& s : series_) {
      std::ranges::stable_sort(s.points, {}, &Point::x);
      const auto twice = std::ranges::adjacent_find(s.points, {}, &Point::x);
      if (twice != s.points.end()) fail_alike(chart, fmt::format("{} {:g}", s.name, twice->x));
    }
  }

  bool empty() const { return series_.empty(); }
  // Joins lines that lie on one another into one, with both names.
  void join_equal(double tolerance) {
    for (std::size_t a = 0; a < series_.size(); ++a) {
      for (std::size_t b = a + 1; b < series_.size();) {
        if (!is_same(series_[a], series_[b], tolerance)) {
          ++b;
          continue;
        }
        series_[a].name = both_names(series_[a].name, series_[b].name);
        series_.erase(series_.begin() + static_cast<std::ptrdiff_t>(b));
      }
    }
  }
  // Ends the y axis at the first of `marks` that no point exceeds.
  void reach(std::span<const double> marks) {
    for (const Series& s : series_) {
      for (const Point& p : s.points) top_ = std::max(top_, p.y);
    }
    const auto next = std::ranges::find_if(marks, [&](double m) { return m >= top_; });
    if (next != marks.end()) top_ = *next;
  }
  const std::vector<Series>& series() const { return series_; }

  // Makes the bottom axis; if it is logarithmic, up to twelve values of points are its ticks.
  Axis x_axis(std::string name, const Box& box, AxisUnit unit) const {
    const Scale::Range range = range_of([](const Point& p) { return std::pair{p.x, p.x}; });
    const Scale scale(range, {box.left + 8, box.right - 8}, is_log_x_, unit);
    Axis out{std::move(name), scale, scale.ticks(tick_count(box.right - box.left, 60)), unit};
    std::set<double> values;
    for (const Series& s : series_) {
      for (const Point& p : s.points) values.insert(p.x);
    }
    const auto is_whole = [](double value) { return value == std::floor(value); };
    // Nothing is between two steps.
    if (!is_log_x_ && std::ranges::all_of(values, is_whole)) {
      std::erase_if(out.ticks, [&](const Tick& tick) { return !is_whole(tick.value); });
    }
    if (is_log_x_ && values.size() <= 12) {
      out.ticks.clear();
      for (double v : values) {
        out.ticks.push_back({v});
        const bool is_plain = unit == AxisUnit::kNumber && v == std::floor(v);
        out.labels.push_back(is_plain ? fmt::format("{:.0f}", v) : tick_text(v, unit));
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
    range.high = std::max(range.high, top_ * 1.08);
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

  static bool is_same(const Series& a, const Series& b, double tolerance) {
    return std::ranges::equal(a.points, b.points, [&](const Point& p, const Point& q) {
      return p.x == q.x && std::abs(p.y - q.y) <= tolerance * std::max(p.y, q.y);
    });
  }
  // Joins two names without repeating what they share: "inference fp32, bf16".
  static std::string both_names(const std::string& a, const std::string& b) {
    const std::size_t last = b.rfind(' ');
    const bool is_alike = last != std::string::npos && a.starts_with(b.substr(0, last + 1));
    return a + ", " + (is_alike ? b.substr(last + 1) : b);
  }

  double top_ = 0;
  std::string list_;
  bool is_log_x_, is_log_y_;
  std::vector<Series> series_;
};

// Counts the lines, drawn later, that cover line `index` on half of its points or more.
std::size_t covering(std::span<const Series> series, std::size_t index, const Axis& y) {
  constexpr double kLineWidth = 2.5;
  const std::vector<Point>& points = series[index].points;
  return static_cast<std::size_t>(
      std::ranges::count_if(series.subspan(index + 1), [&](const Series& later) {
        const auto covered = std::ranges::count_if(points, [&](const Point& p) {
          const auto same = std::ranges::lower_bound(later.points, p.x, {}, &Point::x);
          return same != later.points.end() && same->x == p.x &&
                 std::abs(y.scale.at(same->y) - y.scale.at(p.y)) < kLineWidth;
        });
        return covered > 0 && 2 * covered >= std::ssize(points);
      }));
}

// Draws a line; one that others would hide is wide enough to be seen on both sides of them.
void draw_series(Svg& svg, std::span<const Series> all, std::size_t index, const Axis& x,
                 const Axis& y, const Column* column) {
  constexpr std::array kUnder = {"", " under", " under deep", " under deeper"};
  const Series& series = all[index];
  const std::size_t over = std::min(covering(all, index, y), kUnder.size() - 1);
  const bool is_under = over > 0;
  std::string d;
  for (const Point& p : series.points) {
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x.scale.at(p.x), y.scale.at(p.y));
  }
  const bool is_dashed = index >= kChartColours;
  svg.path(
      fmt::format("line {}{}{}", stroke_class(index), is_dashed ? " dashed" : "", kUnder[over]), d);
  if (series.points.size() > kPointedAt) return;
  const bool is_marked = series.points.size() <= kMarkedPoints;
  for (const Point& p : series.points) {
    const double cx = x.scale.at(p.x), cy = y.scale.at(p.y);
    std::string tip =
        fmt::format("{}\n{} {}: {}", series.name, x.name,
                    x.unit == AxisUnit::kBytes ? tick_text(p.x, x.unit) : fmt::format("{:g}", p.x),
                    labelled(p.y, column));
    if (p.interval) {
      svg.line("whisker", cx, y.scale.at(p.interval->low), cx, y.scale.at(p.interval->high));
      tip += fmt::format(" ({} to {})", labelled(p.interval->low, column),
                         labelled(p.interval->high, column));
    }
    svg.circle(is_marked ? fill_class(index) : "ghost", cx, cy, is_marked && !is_under ? 3.5 : 5.5,
               tip);
  }
}

// Returns the width for names of lines at the right; 0: they do not fit, or are not needed.
double room_of_names(const std::vector<Series>& series, const ChartLook& look) {
  constexpr double kMost = 0.36;  // of the width
  if (series.size() < 2) return 0;
  double widest = 0;
  for (const Series& s : series) widest = std::max(widest, text_width(s.name) + kNameMark);
  const bool fits = static_cast<double>(series.size()) * kNameRow < kNarrowLinesHeight;
  return fits && widest < kMost * look.width ? widest : 0;
}

// Draws each name at the height at which its line ends, or as near to it as the other names allow.
void draw_names(Svg& svg, const std::vector<Series>& series, const Box& box, const Axis& y) {
  std::vector<std::pair<double, std::size_t>> places;
  for (std::size_t i = 0; i < series.size(); ++i) {
    places.emplace_back(y.scale.at(series[i].points.back().y), i);
  }
  std::ranges::sort(places);
  for (std::size_t i = 1; i < places.size(); ++i) {
    places[i].first = std::max(places[i].first, places[i - 1].first + kNameRow);
  }
  double lowest = box.bottom;
  for (std::size_t i = places.size(); i-- > 0; lowest -= kNameRow) {
    places[i].first = std::min(places[i].first, lowest);
    const auto [at, which] = places[i];
    svg.rect(fill_class(which), box.right + 2, at - 4, 8, 8);
    svg.text("name", box.right + kNameMark - 2, at + 4, series[which].name);
  }
}

// The bytes of memory that usual graphics cards have.
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr std::array kCards = {24 * kGiB, 40 * kGiB, 80 * kGiB};

// Draws the memory of usual cards: lines, below those of the chart, or names, above them.
void draw_cards(Svg& svg, const Box& box, const Axis& y, bool are_names) {
  for (double card : kCards) {
    if (card > y.scale.values().high || card < y.scale.values().low) continue;
    const double at = y.scale.at(card);
    if (are_names) {
      svg.text("soft over", box.left + 6, at - 4, "card of " + tick_text(card, AxisUnit::kBytes));
    } else {
      svg.line("card", box.left, at, box.right, at);
    }
  }
}

// Writes the value of the longest time beside its point, if it stands out from the others.
void draw_outlier(Svg& svg, const std::vector<Series>& series, const Axis& x, const Axis& y,
                  const Column* column) {
  constexpr double kStandsOut = 1.3;
  std::vector<Point> all;
  for (const Series& s : series) all.insert(all.end(), s.points.begin(), s.points.end());
  std::ranges::sort(all, {}, &Point::y);
  const Point& most = all.back();
  if (most.y < kStandsOut * all[all.size() / 2].y) return;
  svg.text("over", x.scale.at(most.x) + 8, y.scale.at(most.y) + 12, labelled(most.y, column));
}

}  // namespace

std::string draw_lines(const Chart& chart, std::span<const Table> tables, const ChartLook& look) {
  const ChartRows rows(chart, tables, chart.table);
  Lines lines(chart, rows);
  if (lines.empty()) return {};
  lines.join_equal(0.01);
  const bool is_list = chart.options.find("list") != nullptr;
  const std::vector<std::string> ys = names_of(chart, "y");
  const Column times{.name = "time", .unit = "ms", .kind = ColumnKind::kReal};
  const Column* column = is_list ? &times : rows.column(ys.front());
  const bool has_cards = chart.options.find("cards") != nullptr;
  if (has_cards) lines.reach(kCards);
  Box box = plot_box(look, look.width < 500 ? kNarrowLinesHeight : kLinesHeight);
  const double room = room_of_names(lines.series(), look);
  box.right -= room;
  const Column* across = is_list ? nullptr : rows.column(text_option(chart, "x"));
  const Axis x = lines.x_axis(is_list ? text_option(chart, "x_title") : axis_name(across), box,
                              unit_of(across));
  const Axis y = lines.y_axis(name_of_all(ys, column), box, unit_of(column));
  Svg svg;
  draw_axes(svg, box, x, y);
  if (has_cards) draw_cards(svg, box, y, false);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < lines.series().size(); ++i) {
    draw_series(svg, lines.series(), i, x, y, column);
    names.push_back(lines.series()[i].name);
  }
  if (has_cards) draw_cards(svg, box, y, true);
  if (is_list) draw_outlier(svg, lines.series(), x, y, column);
  if (room > 0) draw_names(svg, lines.series(), box, y);
  const double end =
      room > 0 ? box.bottom + kBelowPlot : draw_legend(svg, names, look, box.bottom + kBelowPlot);
  return svg.finish(look.width, end, chart.title);
}

}  // namespace tracestep
