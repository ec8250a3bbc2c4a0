// One function for each kind of chart; draw_chart() chooses. Each returns an empty text when there
// is nothing to draw.
#pragma once

#include <span>
#include <string>

#include "lab/report/chart/chart.h"

namespace tracestep {

std::string draw_lines(const Chart& chart, std::span<const Table> tables, const ChartLook& look);
std::string draw_bars(const Chart& chart, std::span<const Table> tables, const ChartLook& look);
std::string draw_roofline(const Chart& chart, std::span<const Table> tables, const ChartLook& look);
std::string draw_timeline(const Chart& chart, std::span<const Table> tables, const ChartLook& look);

}  // namespace tracestep
