// All charts share these: the place of the plot, axes with names and ticks, the legend.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/chart/chart.h"
#include "lab/report/chart/scale.h"
#include "lab/report/chart/svg.h"

namespace tracestep {

struct Box {
  double left = 0, right = 0, top = 0, bottom = 0;
};

struct Axis {
  std::string name;  // The axis' name with its unit.
  Scale scale;
  std::vector<Tick> ticks;
  AxisUnit unit = AxisUnit::kNumber;
  std::vector<std::string> labels = {};  // Labels of the ticks; empty: the ticks show their values.
};

// Returns the place of a plot of `height` pixels, with room for ticks to the left and below.
Box plot_box(const ChartLook& look, double height);
// Returns how many labels, each `pixels_of_one` wide, fit beside each other into `pixels`.
int tick_count(double pixels, double pixels_of_one);

// Draws grid, ticks and names of both axes; labels that would overlap are left out.
void draw_axes(Svg& svg, const Box& box, const Axis& x, const Axis& y);
// Draws one axis: the bottom one with its name, the left one without.
void draw_bottom_axis(Svg& svg, const Box& box, const Axis& x);
void draw_left_axis(Svg& svg, const Box& box, const Axis& y);

// Draws a line with the colour and name of each series under the plot, in rows that fit; nothing
// for a single series, nor for one without a name. Returns the height of the whole drawing, which
// ends there.
double draw_legend(Svg& svg, std::span<const std::string> names, const ChartLook& look, double top);

// The room that ticks and the name of an axis need below a plot, in pixels.
inline constexpr double kBelowPlot = 44;

}  // namespace tracestep
