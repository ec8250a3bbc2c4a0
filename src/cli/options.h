// The options that commands share: flags for the fields of a run, and where results go.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/option_set.h"
#include "lab/report/table.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

struct OutputOptions {
  Format format = Format::kText;
  std::filesystem::path path;  // empty: stdout
};

// How many values a flag may have. With kGrid those of an axis are a list.
enum class Values { kOne, kGrid };

// Flags for all fields of a group, with the heading that goes with it (kStep stands under the
// command's own). `devices`: what --device can be for this command.
void add_fields(OptionSet& set, RunGrid& grid, FieldGroup group, Values values,
                const std::string& devices = {});
// The flag of one field. `help`: in place of the field's own.
void add_field(OptionSet& set, RunGrid& grid, std::string_view name, Values values,
               std::string help = {});
void add_output_options(OptionSet& set, OutputOptions& output);

// For lengths of sequences and numbers of them outside the table.
inline constexpr IntRange kShapeRange{1, std::int64_t{1} << 20};

// The environment of every result, with the threads and limits of this run. Taken before anything
// runs: afterwards this thread is bound to one core, and the count of cores would be wrong.
Json environment_of(std::span<const std::string> arguments, const RunSpec& run);

}  // namespace tracestep::cli
