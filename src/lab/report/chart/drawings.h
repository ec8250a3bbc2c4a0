// One function for each kind of chart; draw_chart() chooses. Each returns an empty text when there
// is nothing to draw.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/chart/chart.h"

namespace tracestep {

std::string draw_lines(const Chart& chart, std::span<const Table> tables, const ChartLook& look);
std::string draw_bars(const Chart& chart, std::span<const Table> tables, const ChartLook& look);
std::string draw_roofline(const Chart& chart, std::span<const Table> tables, const ChartLook& look);
std::string draw_timeline(const Chart& chart, std::span<const Table> tables, const ChartLook& look);

// Shortens names so that they fit beside a bar, to at most 36 characters each. Return types and
// namespaces of kernels are dropped. Where long names begin alike, the shared middle is cut out.
std::vector<std::string> short_names(std::span<const std::string> names);

}  // namespace tracestep
