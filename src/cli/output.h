// Writes results to stdout or to a file, which appears whole or not at all.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"
#include "lab/report/table.h"

namespace tracestep::cli {

// A file given on the command line: its flag and its path.
struct NamedPath {
  std::string flag;
  std::filesystem::path path;  // empty: not given
};

// Throws Error{kUsage} if an output is the same file as an input or another output, also through
// links or another spelling of the path. Call it before anything is written. Streams may be shared.
void check_apart(std::span<const NamedPath> inputs, std::span<const NamedPath> outputs);

// Throws Error{kOutput} if --output cannot be written; call this before the work starts.
void probe_output(const OutputOptions& output);

// Writes plain text to `path`, or to stdout when it is empty. Error{kOutput}.
void write_text(std::string_view text, const std::filesystem::path& path);

// The number of columns of a screen of text: at most 100, also where stdout is no terminal.
std::size_t screen_columns();

// The ending of --output with which some commands write a page (OutputOptions::own_endings).
inline constexpr const char* kPageEnding = ".html";
bool is_page(const OutputOptions& output);

// Writes tables with the environment of this run. `schema` names the result: "tracestep.bench/1".
// If --pictures is given, it draws the charts of the schema's pages (lab/pages/commands) from these
// tables and from `drawn`, which no text shows.
void write_tables(const OutputOptions& output, std::string schema, Json environment,
                  std::vector<Table> tables, std::vector<Table> drawn = {});

}  // namespace tracestep::cli
