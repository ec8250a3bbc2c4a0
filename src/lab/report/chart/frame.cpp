#include "lab/report/chart/frame.h"

#include <algorithm>

namespace tracestep {
namespace {

constexpr double kNameHeight = 24, kTickRoom = 66, kRightRoom = 16;
constexpr double kLegendRow = 18, kLegendMark = 11, kLegendGap = 14, kEdge = 8;
constexpr double kLetterGap = 8;  // between labels of neighbouring ticks

}  // namespace

Box plot_box(const ChartLook& look, double height) {
  return {.left = kTickRoom,
          .right = look.width - kRightRoom,
          .top = kNameHeight,
          .bottom = kNameHeight + height};
}

int tick_count(double pixels, double pixels_of_one) {
  return std::max(2, static_cast<int>(pixels / pixels_of_one));
}

void draw_bottom_axis(Svg& svg, const Box& box, const Axis& x) {
  double free_from = -1e9;
  for (std::size_t i = 0; i < x.ticks.size(); ++i) {
    const Tick& tick = x.ticks[i];
    const double at = x.scale.at(tick.value);
    svg.line("grid", at, box.top, at, box.bottom);
    const std::string words = x.labels.empty() ? tick_text(tick.value, x.unit) : x.labels[i];
    const double half = text_width(words) / 2;
    if (!tick.is_labelled || at - half < free_from) continue;
    svg.text("soft", at, box.bottom + 16, words, Anchor::kMiddle);
    free_from = at + half + kLetterGap;
  }
  svg.text("name", (box.left + box.right) / 2, box.bottom + 35, x.name, Anchor::kMiddle);
}

void draw_left_axis(Svg& svg, const Box& box, const Axis& y) {
  double free_below = 1e9;
  for (const Tick& tick : y.ticks) {
    const double at = y.scale.at(tick.value);
    svg.line("grid", box.left, at, box.right, at);
    if (!tick.is_labelled || at > free_below) continue;
    svg.text("soft", box.left - 6, at + 4, tick_text(tick.value, y.unit), Anchor::kEnd);
    free_below = at - 15;
  }
  svg.line("axis", box.left, box.top, box.left, box.bottom);
  svg.line("axis", box.left, box.bottom, box.right, box.bottom);
}

void draw_axes(Svg& svg, const Box& box, const Axis& x, const Axis& y) {
  draw_bottom_axis(svg, box, x);
  draw_left_axis(svg, box, y);
  svg.text("name", kEdge, box.top - 9, y.name);
}

double draw_legend(Svg& svg, std::span<const std::string> names, const ChartLook& look,
                   double top) {
  if (names.size() < 2) return top;
  double x = kEdge, y = top;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const double width = kLegendMark + 5 + text_width(names[i]);
    if (x > kEdge && x + width > look.width - kEdge) {
      x = kEdge;
      y += kLegendRow;
    }
    svg.rect(fill_class(i), x, y + 2, kLegendMark, kLegendMark);
    svg.text("soft", x + kLegendMark + 5, y + 12, names[i]);
    x += width + kLegendGap;
  }
  return y + kLegendRow + 4;
}

}  // namespace tracestep
