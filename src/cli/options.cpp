#include "cli/options.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/output_file.h"
#include "captured/captured_model.h"
#include "cli/cuda.h"
#include "lab/measure/environment.h"
#include "lab/precision/tables.h"
#include "lab/predict/time_source.h"
#include "nn/families.h"
#include "weights/checkpoint_files.h"
#include "weights/family_files.h"
#include "weights/model_notes.h"
#include "weights/weight_files.h"

namespace tracestep::cli {
namespace {

// Refuses a list of values for a flag that takes lists only in commands that measure a grid.
void check_only(const std::string& flag, const std::string& text) {
  const auto count = 1 + std::ranges::count(text, ',');
  if (count == 1) return;
  throw Error(ErrorCode::kUsage, flag,
              fmt::format("{} values are given; this command takes one", count),
              fmt::format("give {} {}", flag, text.substr(0, text.find(','))));
}

// Explains why a path is no model: checkpoints of a run, an adapter, weights in other files. Throws
// Error{kInput} where it is one of these.
void refuse_as_model(const std::string& flag, const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_directory(path, none) || is_model_folder(path)) return;
  if (is_captured_folder(path)) {
    throw Error(ErrorCode::kInput, flag, fmt::format("{} is a captured module", path),
                fmt::format("give --program {}", path));
  }
  if (has_checkpoints(path)) {
    throw Error(ErrorCode::kInput, flag,
                fmt::format("{} holds checkpoints, and no config.json", path),
                fmt::format("train, eval and generate take it as --init {}", path));
  }
  refuse_foreign_weights(path);
}

std::string default_of(const RunGrid& grid, const RunField& field) {
  const bool comes_with_preset = field.group == FieldGroup::kModel && field.show == FieldShow::kKey;
  if (comes_with_preset || default_text(field, grid.base).empty()) return {};
  return fmt::format("{}", fmt::join(grid.texts(field), ","));
}

}  // namespace

void add_field(OptionSet& set, RunGrid& grid, std::string_view name, Values values,
               std::string help) {
  const RunField& field = field_named(name);
  if (help.empty()) help = field.help;
  if (field.value_name.empty()) {
    set.values(field.flag, "", 0, 0, std::move(help),
               [&grid, &field](const std::string& where, const std::string& text) {
                 grid.give(field, where, {text});
               });
    set.sets_field(field.name);
    return;
  }
  const bool is_list = field.is_axis && values == Values::kGrid;
  const std::string value_name =
      is_list ? fmt::format("{}[,{}]", field.value_name, field.value_name) : field.value_name;
  const auto by = std::make_shared<std::string>();  // the flag that gave the values
  const bool is_model = field.name == "size";
  const auto read = [&grid, &field, is_list, is_model, by](const std::string& where,
                                                           const std::string& text) {
    if (!by->empty() && *by != where) {
      throw Error(ErrorCode::kUsage, where, fmt::format("{} is given beside it", *by),
                  "give one of them");
    }
    *by = where;
    if (field.is_axis && !is_list) check_only(where, text);
    const std::vector<std::string> given =
        is_list ? split_list(where, text) : std::vector<std::string>{text};
    try {
      grid.give(field, where, given);
    } catch (const Error&) {
      if (is_model) std::ranges::for_each(given, [&](const auto& t) { refuse_as_model(where, t); });
      throw;
    }
    if (field.thousand == Thousand::kDecimal) return;
    const std::vector<std::string> as_read = grid.texts(field);
    for (std::size_t i = 0; i < given.size(); ++i) say_if_scaled(where, given[i], as_read[i]);
  };
  if (!field.alias.empty()) {
    set.value(field.alias, value_name, field.alias_help, read);
    if (is_list) set.lists_cells();
  }
  help += help_of_thousand(field.thousand);
  if (!field.choices.empty()) help += fmt::format(": {}", fmt::join(field.choices, ", "));
  set.value(field.flag, value_name, std::move(help), read, default_of(grid, field));
  set.sets_field(field.name, by);
  set.offer(field.choices);
  if (is_list) set.lists_cells();
}

void add_fields(OptionSet& set, RunGrid& grid, FieldGroup group, Values values,
                const std::string& devices) {
  if (group == FieldGroup::kModel) set.group(kModelGroup);
  if (group == FieldGroup::kHow) set.group("How it runs");
  bool is_first = true;
  for (const RunField& field : run_fields()) {
    if (field.group != group) continue;
    if (is_of_architecture(field) && std::exchange(is_first, false)) {
      set.group(kArchitectureGroup);
    }
    add_field(set, grid, field.name, values, field.name == "device" ? devices : std::string());
  }
}

void add_run_fields(OptionSet& set, RunGrid& grid, Values values, const std::string& devices) {
  for (FieldGroup group : {FieldGroup::kStep, FieldGroup::kModel, FieldGroup::kHow}) {
    add_fields(set, grid, group, values, devices);
  }
}

void add_protocol_flag(OptionSet& set, Protocol& protocol, std::string_view name,
                       std::string help) {
  add_flag(set, protocol, field_named(protocol_fields(), name), std::move(help));
}

void add_time_options(OptionSet& set, TimeOptions& options) {
  options.advice = kTimesAdvice;
  set.text("--published", "NAME", options.published,
           "predict for a device by its published peaks, as show --devices lists them: H100, "
           "A100 80 GB, RTX 4090");
  set.path("--calibration", "FILE", options.calibration,
           "the calibration of this device; the history of checks stands beside it");
}

void add_error_options(OptionSet& set, ErrorSpec& error) {
  set.integer("--error-layers", error.layers, {0, 1000},
              "measure errors on a model of at most N layers; 0: measure none");
  set.integer("--error-tokens", error.tokens, {1, 1 << 20},
              "and on one sequence of at most N tokens");
}

void add_overwrite_flag(OptionSet& set, std::string help, bool* is_given) {
  set.values("--overwrite", "", 0, 0, std::move(help),
             [is_given](const std::string&, const std::string&) {
               if (is_given != nullptr) *is_given = true;
               allow_overwriting();
             });
}

void add_output_options(OptionSet& set, OutputOptions& output) {
  set.group("Output");
  set.writes_to(output);
  set.value(
      "--format", "NAME", std::string(kFormatNames),
      [&output](const std::string& where, const std::string& text) {
        output.format = parse_format(where, text);
        output.is_format_given = true;
      },
      "as the ending of --output says, else text");
  set.offer({"text", "markdown", "csv", "json", "latex", "typst"});
  set.value("--output", "FILE", "write the result here instead of to stdout, which - stands for",
            [&output](const std::string& where, const std::string& text) {
              if (text.empty()) fail_usage(where, "the value is empty");
              output.path = text == "-" ? "" : text;
            });
  const auto& all = set.options();
  if (std::ranges::find(all, "--overwrite", &Option::flag) == all.end()) add_overwrite_flag(set);
  set.value("--columns", "NAME[,NAME]",
            "only these columns, by their names in JSON, of the tables that have all of them",
            [&output](const std::string& where, const std::string& text) {
              output.columns = split_list(where, text);
            });
  if (std::ranges::find(all, "--tables", &Option::flag) == all.end()) {
    set.value("--tables", "NAME[,NAME]",
              "these tables, by their names in JSON, whole; the last line of a text names them",
              [&output](const std::string& where, const std::string& text) {
                output.tables = split_list(where, text);
              });
  }
  set.toggle("--all", output.is_all,
             "every table and column, where a text is one sentence and one table of a screen");
}

void settle_format(OutputOptions& output) {
  std::string ending = output.path.extension().string();
  const bool is_own = std::ranges::find(output.own_endings, ending) != output.own_endings.end();
  if (ending.size() < 2 || is_own || is_stream(output.path)) return;
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::optional<Format> named = format_of_ending(ending);
  if (output.is_format_given) {
    if (!named || *named == output.format || *named == Format::kText) return;
    throw Error(ErrorCode::kUsage, "--output",
                fmt::format("{} ends as {} does, and --format says {}", output.path.string(),
                            name_of(*named), name_of(output.format)),
                "give one of the two");
  }
  if (!named) {
    throw Error(ErrorCode::kUsage, "--output",
                fmt::format("{}: the ending {} stands for no format", output.path.string(), ending),
                fmt::format("end it in {}, or give --format", kFormatEndings));
  }
  output.format = *named;
}

Json environment_of(std::span<const std::string> arguments, const RunSpec& run) {
  Json out = capture_environment(arguments, run.place.threads);
  out["device_memory_limit_bytes"] =
      run.place.memory_limit_bytes > 0 ? Json(run.place.memory_limit_bytes) : Json();
  out["seed"] = run.seed;
  add_cuda_environment(run.place, out);
  return out;
}

}  // namespace tracestep::cli
