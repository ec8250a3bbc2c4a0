// Charts as files, without a browser: SVG, and PNG where rsvg-convert of librsvg is installed.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "cli/command.h"
#include "lab/report/chart/chart.h"

namespace tracestep::cli {

// The file name of a chart without its ending: table, first column and label, as in
// "saved_by_op-bytes-tiny-context-128-step".
std::string picture_name(const Chart& chart);

// Adds the option --pictures, which write_tables() reads, to a command whose answer has charts.
void add_pictures(Command& command);

// Titles says whether pictures have a title. write_pictures() writes the charts for which `tables`
// have data. Throws Error{kOutput}.
enum class Titles { kNone, kFindings };
void write_pictures(const std::filesystem::path& folder, std::span<const Chart> charts,
                    std::span<const Table> tables, Titles titles = Titles::kFindings);

}  // namespace tracestep::cli
