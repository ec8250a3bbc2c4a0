// Charts as files, without a browser: SVG, and PNG where rsvg-convert of librsvg is installed.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "cli/command.h"
#include "lab/report/chart/chart.h"

namespace tracestep::cli {

// "saved_by_op-bytes-tiny-context-128-step": the table of a chart, the first column that it draws
// and its label, as the name of a file.
std::string picture_name(const Chart& chart);

// Gives a command whose answer has charts the option --pictures, which write_tables() obeys.
void add_pictures(Command& command);

// Writes those charts of which `tables` have something to draw. Error{kOutput}.
enum class Titles { kNone, kFindings };
void write_pictures(const std::filesystem::path& folder, std::span<const Chart> charts,
                    std::span<const Table> tables, Titles titles = Titles::kFindings);

}  // namespace tracestep::cli
