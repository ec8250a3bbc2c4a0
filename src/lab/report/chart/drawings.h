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

// Names that fit beside a bar. Names, above all of kernels, without return type and namespaces, in
// at most 36 characters each: of long ones that begin alike, the beginning and what follows the
// part that they share.
std::vector<std::string> short_names(std::span<const std::string> names);

}  // namespace tracestep
