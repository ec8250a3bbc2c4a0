// The options that commands share: flags for the fields of a run and for the output of results.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "base/json.h"
#include "cli/option_set.h"
#include "lab/report/table.h"
#include "spec/protocol.h"
#include "spec/run_grid.h"

namespace tracestep {
struct ErrorSpec;    // lab/precision/tables.h
struct TimeOptions;  // lab/predict/time_source.h
}  // namespace tracestep

namespace tracestep::cli {

// Headings of the flags of a model: its sizes, and its architecture.
inline constexpr const char *kModelGroup = "Model",
                            *kArchitectureGroup = "Architecture (comes with --model or --size)";

struct OutputOptions {
  Format format = Format::kText;  // The format of --format, else that of the output file's ending.
  bool is_format_given = false;
  std::filesystem::path path;  // empty: stdout
  // Endings for which the command writes something other than tables.
  std::vector<std::string> own_endings = {};
  // The columns to write, of tables that have all of them; empty: all columns.
  std::vector<std::string> columns = {};
  // The tables to write, by name; empty: the one that answers the command's question.
  std::vector<std::string> tables = {};
  bool is_all = false;                  // True: write every table and column as text.
  std::filesystem::path pictures = {};  // The folder for charts; empty: none are drawn.
};

// Takes the format from the ending of --output if --format is not given. Throws Error{kUsage} if
// the ending stands for no format or for another one than --format. Own endings of the command
// cannot be combined with --format, and streams have no ending.
void settle_format(OutputOptions& output);

// Whether a flag takes one value or, for fields that are axes of a grid, a list.
enum class Values { kOne, kGrid };

// Adds flags for all fields of a group, under the group's heading; those of kStep stand under the
// command's own heading. `devices`: the values of --device that the command accepts.
void add_fields(OptionSet& set, RunGrid& grid, FieldGroup group, Values values,
                const std::string& devices = {});
// Adds the flags of all three groups.
void add_run_fields(OptionSet& set, RunGrid& grid, Values values, const std::string& devices);
// Adds the flag of one field. `help` replaces the field's own help text.
void add_field(OptionSet& set, RunGrid& grid, std::string_view name, Values values,
               std::string help = {});
// Adds the flag of a field that takes one value and belongs to no grid. `target` also provides its
// default.
template <class Spec>
void add_flag(OptionSet& set, Spec& target, const SpecField<Spec>& field, std::string help = {}) {
  if (help.empty()) help = field.help;
  help += help_of_thousand(field.thousand);
  if (!field.choices.empty()) help += fmt::format(": {}", fmt::join(field.choices, ", "));
  set.value(
      field.flag, field.value_name, std::move(help),
      [&target, &field](const std::string& where, const std::string& text) {
        field.parse(where, text)(target);
      },
      default_text(field, target));
  set.sets_field(field.name);
  set.offer(field.choices);
}
// Adds the flag of the protocol's field with this name.
void add_protocol_flag(OptionSet& set, Protocol& protocol, std::string_view name,
                       std::string help = {});
// The advice that is shown if no device's times are known.
inline constexpr const char* kTimesAdvice =
    "for times add --published H100, or measure this device once: tracestep predict --calibrate";
// Adds the flags that select the device or calibration whose times are predicted.
void add_time_options(OptionSet& set, TimeOptions& options);
// Adds the flags that limit the model for which errors against float64 are measured.
void add_error_options(OptionSet& set, ErrorSpec& error);
// Adds the output flags, and --overwrite if the command does not have it yet.
void add_output_options(OptionSet& set, OutputOptions& output);
// Adds the flag by which outputs may replace files of other programs; `is_given` is set to true if
// it is given.
void add_overwrite_flag(OptionSet& set,
                        std::string help = "replace files that tracestep did not write",
                        bool* is_given = nullptr);

// The range of lengths and widths whose flags are not fields of a run.
inline constexpr IntRange kShapeRange{1, std::int64_t{1} << 20, Thousand::kBinary};

// The environment of every result, with the threads and limits of this run. Call it before anything
// runs: afterwards this thread is bound to one core, and the count of cores would be wrong.
Json environment_of(std::span<const std::string> arguments, const RunSpec& run);

}  // namespace tracestep::cli
