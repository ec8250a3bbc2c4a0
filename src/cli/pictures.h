// Charts as files, without a browser: SVG, and PNG where rsvg-convert of librsvg is installed.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "lab/report/chart/chart.h"

namespace tracestep::cli {

// "stack-active-memory-through-the-step-tiny-context-128-step": the table, the title and the label
// of a chart, as the name of a file.
std::string picture_name(const Chart& chart);

// Error{kOutput} when pictures cannot be written to `folder`, which is made when it is missing;
// call it before the work starts.
void probe_pictures(const std::filesystem::path& folder);
// Writes those charts of which `tables` have something to draw. Error{kOutput}.
enum class Titles { kNone, kFindings };
void write_pictures(const std::filesystem::path& folder, std::span<const Chart> charts,
                    std::span<const Table> tables, Titles titles = Titles::kFindings);

}  // namespace tracestep::cli
