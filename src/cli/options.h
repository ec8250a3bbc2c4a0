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

// Headings of the flags of a model: sizes, and what tells architectures apart.
inline constexpr const char *kModelGroup = "Model",
                            *kArchitectureGroup = "Architecture (comes with --model or --size)";

struct OutputOptions {
  Format format = Format::kText;  // as --format says, else as the file's ending does
  bool is_format_given = false;
  std::filesystem::path path;                 // empty: stdout
  std::vector<std::string> own_endings = {};  // with which this command writes something else
  std::vector<std::string> columns = {};      // of the tables that have all of them; empty: all
  std::vector<std::string> tables = {};       // by name; empty: the one that answers
  bool is_all = false;                        // every table and column, as text
  std::filesystem::path pictures = {};        // the folder of charts; empty: none are drawn
};

// Takes the format from the ending of --output where no --format is given. Error{kUsage}: the
// ending stands for no format, or for another one than is given. Other endings go with --format,
// and streams have none.
void settle_format(OutputOptions& output);

// How many values a flag may have: one, or with kGrid a list for fields that are axes.
enum class Values { kOne, kGrid };

// Flags for all fields of a group, with the group's heading (kStep goes under the command's own).
// `devices`: the values of --device for this command.
void add_fields(OptionSet& set, RunGrid& grid, FieldGroup group, Values values,
                const std::string& devices = {});
// The flags of all three groups.
void add_run_fields(OptionSet& set, RunGrid& grid, Values values, const std::string& devices);
// Adds the flag of one field. `help` replaces the field's own help text.
void add_field(OptionSet& set, RunGrid& grid, std::string_view name, Values values,
               std::string help = {});
// Adds the flag of a field that has one value and no grid. `target` also has its default.
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
  set.offer(field.choices);
}
// Adds the flag of the protocol's field of this name.
void add_protocol_flag(OptionSet& set, Protocol& protocol, std::string_view name,
                       std::string help = {});
// Says what to do where no device's times are known.
inline constexpr const char* kTimesAdvice =
    "for times add --published H100, or measure this device once: tracestep predict --calibrate";
// Adds the flags that say whose times are predicted.
void add_time_options(OptionSet& set, TimeOptions& options);
// Adds the flags for the part of a model whose errors against float64 are measured.
void add_error_options(OptionSet& set, ErrorSpec& error);
// Adds the flags of output, and --overwrite where the command lacks it.
void add_output_options(OptionSet& set, OutputOptions& output);
// Adds the flag that lets every output replace the files of others; sets `is_given`, too.
void add_overwrite_flag(OptionSet& set,
                        std::string help = "replace files that tracestep did not write",
                        bool* is_given = nullptr);

// The range of lengths and widths whose flags are not fields of a run.
inline constexpr IntRange kShapeRange{1, std::int64_t{1} << 20, Thousand::kBinary};

// The environment of every result, with the threads and limits of this run. Call it before anything
// runs: afterwards this thread is bound to one core, and the count of cores would be wrong.
Json environment_of(std::span<const std::string> arguments, const RunSpec& run);

}  // namespace tracestep::cli
