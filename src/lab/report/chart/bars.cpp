// Bars: a row each, or the sum over rows that differ in the columns of "over" alone, in segments of
// value columns or of the values of a column.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "lab/report/chart/chart_rows.h"
#include "lab/report/chart/drawings.h"
#include "lab/report/chart/frame.h"

namespace tracestep {
namespace {

struct Segment {
  std::string name;
  double value = 0;
};
struct Bar {
  std::string label;
  std::vector<Segment> segments;
  int values = 0;                        // that it sums
  std::optional<Whisker> interval = {};  // of its only value
  double sum() const {
    double out = 0;
    for (const Segment& s : segments) out += s.value;
    return out;
  }
};

constexpr double kRowHeight = 21, kThickness = 15, kValueRoom = 92, kValueGap = 6;
constexpr double kWidestLabel = 300, kNarrowLeft = 16;  // so that the axis' "0 B" has room
constexpr double kNoAxisName = 18;                      // nothing stands above the bars

// Returns the columns that label bars: those of the chart, else visible keys in which rows differ.
std::vector<std::string> named_labels(const Chart& chart, const ChartRows& rows) {
  std::vector<std::string> out = names_of(chart, "label");
  if (!out.empty() || rows.empty()) return out;
  for (const Column& column : rows.columns()) {
    bool differs = false;
    for (std::size_t r = 1; r < rows.size(); ++r) {
      differs = differs || rows.text(r, column.name) != rows.text(0, column.name);
    }
    if (differs && column.role == ColumnRole::kKey && !column.data_only) out.push_back(column.name);
  }
  if (out.empty()) out.push_back(rows.columns().front().name);
  return out;
}

std::string label_of(std::span<const std::string> columns, const ChartRows& rows, std::size_t row) {
  std::string out;
  for (const std::string& name : columns) {
    const std::string part = rows.text(row, name);
    if (!part.empty()) out += (out.empty() ? "" : " ") + part;
  }
  return out;
}

// Groups the rows that have a bar by their label, which the texts of the columns `labels` make.
RowGroups drawn_rows(const Chart& chart, const ChartRows& rows,
                     std::span<const std::string> labels) {
  const std::vector<std::string> skipped = names_of(chart, "skip");
  const std::vector<std::string> values = names_of(chart, "values");
  RowGroups out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string label = label_of(labels, rows, r), first = rows.text(r, labels.front());
    const bool has_value = std::ranges::any_of(
        values, [&](const std::string& column) { return rows.number(r, column).has_value(); });
    const bool is_skipped = std::ranges::any_of(
        skipped, [&](const std::string& name) { return name == first || name == label; });
    if (has_value && !label.empty() && !is_skipped) out[label].push_back(r);
  }
  return out;
}

void add_to(Bar& bar, const std::string& name, double value) {
  auto found = std::ranges::find(bar.segments, name, &Segment::name);
  if (found == bar.segments.end()) found = bar.segments.insert(bar.segments.end(), {name, 0});
  found->value += value;
}

// Throws the error of fail_alike() if two rows with one label agree in all columns of `apart`.
void check_apart(const Chart& chart, const ChartRows& rows, const RowGroups& groups,
                 std::span<const std::string> apart) {
  for (const auto& [label, all] : groups) {
    std::set<std::vector<std::string>> seen;
    for (const std::size_t row : all) {
      std::vector<std::string> place;
      for (const std::string& column : apart) place.push_back(rows.text(row, column));
      if (!seen.insert(std::move(place)).second) fail_alike(chart, label);
    }
  }
}

std::vector<Bar> bars_of(const Chart& chart, const ChartRows& rows) {
  const std::vector<std::string> values = names_of(chart, "values");
  const std::string stack = text_option(chart, "stack");
  std::vector<std::string> labels = named_labels(chart, rows), apart = names_of(chart, "over");
  if (labels.empty()) return {};
  if (!stack.empty()) apart.push_back(stack);
  std::vector<std::string> known = labels;
  known.insert(known.end(), apart.begin(), apart.end());
  const std::vector<std::string> more = keys_apart(rows, drawn_rows(chart, rows, labels), known);
  labels.insert(labels.end(), more.begin(), more.end());
  const RowGroups groups = drawn_rows(chart, rows, labels);
  check_apart(chart, rows, groups, apart);
  std::vector<Bar> out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::string label = label_of(labels, rows, r);
    const auto group = groups.find(label);
    if (group == groups.end() || !std::ranges::binary_search(group->second, r)) continue;
    for (const std::string& column : values) {
      const auto value = rows.number(r, column);
      if (!value) continue;
      auto bar = std::ranges::find(out, label, &Bar::label);
      if (bar == out.end()) bar = out.insert(out.end(), Bar{.label = label, .segments = {}});
      const std::string part = stack.empty() ? title_of(*rows.column(column)) : rows.text(r, stack);
      add_to(*bar, part.empty() ? "no " + stack : part, *value);
      ++bar->values;
      bar->interval = bar->values == 1 ? whisker_of(chart, rows, r, column) : std::nullopt;
    }
  }
  return out;
}

// Sorts bars, the longest first, and adds up those after the first `count` to one, "N more".
void keep_longest(std::vector<Bar>& bars, std::size_t count) {
  std::ranges::stable_sort(bars, std::greater(), &Bar::sum);
  if (bars.size() <= count) return;
  Bar rest{.label = fmt::format("{} more", bars.size() - count), .segments = {}};
  for (std::size_t i = count; i < bars.size(); ++i) {
    for (const Segment& s : bars[i].segments) add_to(rest, s.name, s.value);
  }
  bars.resize(count);
  bars.push_back(std::move(rest));
}

std::vector<std::string> segment_names(const std::vector<Bar>& bars) {
  std::vector<std::string> out;
  for (const Bar& bar : bars) {
    for (const Segment& s : bar.segments) {
      if (std::ranges::find(out, s.name) == out.end()) out.push_back(s.name);
    }
  }
  return in_order_of_phases(std::move(out));
}

// Returns the range of the axis; on a logarithmic one, it begins at a power of ten below all bars.
Scale::Range range_of(const std::vector<Bar>& bars, bool is_log) {
  double high = 0, low = 1e300;
  for (const Bar& bar : bars) {
    high = std::max({high, bar.sum(), bar.interval ? bar.interval->high : 0.0});
    if (bar.sum() > 0) low = std::min(low, bar.sum());
  }
  if (high <= 0) return {is_log ? 0.1 : 0.0, 1.0};
  if (!is_log) return {0, high};
  return {std::pow(10.0, std::floor(std::log10(low) - 0.2)), high * 1.2};
}

class BarDrawing {
 public:
  BarDrawing(const Chart& chart, const ChartLook& look, const Column* column, std::vector<Bar> bars)
      : look_(look),
        column_(column),
        bars_(std::move(bars)),
        names_(segment_names(bars_)),
        range_(range_of(bars_, is_logarithmic(chart, 'x'))),
        is_narrow_(look.width < 500) {
    std::vector<std::string> labels;
    for (const Bar& bar : bars_) labels.push_back(bar.label);
    labels_ = short_names(labels);
    double widest = 0;
    for (const std::string& label : labels_) widest = std::max(widest, text_width(label));
    box_ = plot_box(look, row_height() * static_cast<double>(bars_.size()) + 4);
    box_.top -= kNoAxisName;
    box_.bottom -= kNoAxisName;
    box_.left = is_narrow_ ? kNarrowLeft : std::min(kWidestLabel, widest + 18);
    box_.right = look.width - value_room();
    is_log_ = is_logarithmic(chart, 'x');
  }

  std::string draw(const Chart& chart) const {
    Svg svg;
    const AxisUnit unit = unit_of(column_);
    const Scale x(range_, {box_.left, box_.right}, is_log_, unit);
    draw_bottom_axis(svg, box_,
                     {name_of_all(names_of(chart, "values"), column_), x,
                      x.ticks(tick_count(box_.right - box_.left, 75)), unit});
    for (std::size_t i = 0; i < bars_.size(); ++i) draw_bar(svg, i, x);
    svg.line("axis", box_.left, box_.top, box_.left, box_.bottom);
    return svg.finish(look_.width, draw_legend(svg, names_, look_, box_.bottom + kBelowPlot),
                      chart.title);
  }

 private:
  // Returns the width that the longest value needs: values are written to the right of their bars.
  double value_room() const {
    double out = kValueRoom;
    for (const Bar& bar : bars_) {
      out = std::max(out, 2 * kValueGap + text_width(labelled(bar.sum(), column_)));
    }
    return out;
  }

  // Returns the height of a row; labels stand above the bars if there is no room beside them.
  double row_height() const { return kRowHeight + (is_narrow_ ? 15 : 0); }

  void draw_bar(Svg& svg, std::size_t index, const Scale& x) const {
    const Bar& bar = bars_[index];
    double y = box_.top + row_height() * static_cast<double>(index) + 3;
    if (is_narrow_) {
      svg.text("over", box_.left + 2, y + 11, labels_[index]);
      y += 15;
    } else {
      svg.text("name", box_.left - 8, y + 12, labels_[index], Anchor::kEnd);
    }
    double end = range_.low;
    for (const std::string& name : names_) {
      const auto found = std::ranges::find(bar.segments, name, &Segment::name);
      if (found == bar.segments.end() || found->value <= 0) continue;
      const double begin = end;
      end = is_log_ ? std::max(found->value, begin) : begin + found->value;
      const auto colour =
          static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin());
      svg.rect(fill_class(colour), x.at(begin), y, std::max(0.5, x.at(end) - x.at(begin)),
               kThickness, note_of(bar, *found));
    }
    const bool has_whisker = bar.interval && bar.interval->low > 0;
    if (has_whisker) {
      draw_whisker(svg, x.at(std::max(bar.interval->low, range_.low)), x.at(bar.interval->high),
                   y + kThickness - 2);
    }
    // The label begins where the bar ends, and lies above the part of the whisker beyond it.
    svg.text("soft over", x.at(end) + kValueGap, y + (has_whisker ? 9 : 12),
             labelled(bar.sum(), column_));
  }

  // Draws an error bar whose ends are marked; an edge separates it from its bar.
  static void draw_whisker(Svg& svg, double from, double to, double y) {
    svg.line("halo", from - 1, y, to + 1, y);
    svg.line("whisker", from, y, to, y);
    for (const double end : {from, to}) svg.line("whisker cap", end, y - 3, end, y + 3);
  }

  std::string note_of(const Bar& bar, const Segment& segment) const {
    std::string out = bar.label;
    if (names_.size() > 1) out += "\n" + segment.name;
    out += ": " + labelled(segment.value, column_);
    if (bar.interval) {
      out += fmt::format(" ({} to {})", labelled(bar.interval->low, column_),
                         labelled(bar.interval->high, column_));
    }
    return out;
  }

  const ChartLook& look_;
  const Column* column_;
  std::vector<Bar> bars_;
  std::vector<std::string> names_, labels_;
  Scale::Range range_;
  bool is_narrow_, is_log_ = false;
  Box box_;
};

}  // namespace

std::string draw_bars(const Chart& chart, std::span<const Table> tables, const ChartLook& look) {
  const ChartRows rows(chart, tables, chart.table);
  std::vector<Bar> bars = bars_of(chart, rows);
  if (bars.empty()) return {};
  if (const Json* top = chart.options.find("top")) {
    keep_longest(bars, static_cast<std::size_t>(top->as_int()));
  }
  const Column* column = rows.column(names_of(chart, "values").front());
  return BarDrawing(chart, look, column, std::move(bars)).draw(chart);
}

}  // namespace tracestep
