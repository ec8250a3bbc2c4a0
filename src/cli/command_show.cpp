// tracestep show: the program of a step after any pass, what the passes did, and the ops.
#include <memory>

#include "base/env.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/printed_pages.h"
#include "cli/text_lines.h"
#include "course/claims.h"
#include "ir/print.h"
#include "lab/predict/devices.h"
#include "lab/report/known_columns.h"
#include "ops/functions.h"
#include "spec/micro_batches.h"
#include "spec/step_program.h"

namespace tracestep::cli {
namespace {

constexpr const char* kStart = "start";  // the program before the first pass

struct ShowOptions {
  RunGrid grid{{.model = preset("small"),
                .shape = {.batch = 4, .context = 512},
                .place = {.device = "null"}}};
  OutputOptions output;
  std::string after, docs;
  std::vector<std::string> diff, disabled;
  bool passes = false, locations = false, ops_list = false, devices = false;
};

std::vector<std::string> pass_names(bool with_start) {
  std::vector<std::string> out;
  if (with_start) out.emplace_back(kStart);
  for (const auto& [name, doc] : pipeline_passes()) out.push_back(name);
  return out;
}

// Runs passes for a device, whose kernels decide which ops are expanded; "null" stands for any.
class Pipeline {
 public:
  Pipeline(const ShowOptions& o, const RunSpec& spec)
      : options_(o), spec_(spec), device_(make_device(spec)) {
    spec_.verify = env::verify_after_every_pass();
  }

  // Runs the passes; for a step in micro-batches, those of the micro-batch that is repeated.
  PipelineResult run(const std::string& after) const {
    PassContext context{.traits = device_->traits(),
                        .has_kernel = [this](const OpDef& op) { return device_->has_kernel(op); },
                        .disabled = {options_.disabled.begin(), options_.disabled.end()},
                        .stop_after = after};
    if (micro_batches_of(spec_) == 1) return passed(forward_program(spec_), spec_, context);
    if (after.empty()) return step_passes(spec_, *device_, context);
    const RunSpec part = micro_batch_of(spec_, GradientKind::kAccumulate);
    return passed(micro_batch_loss(part, spec_.accumulate), part, context);
  }

  std::string text(const std::string& after) const {
    return print(run(after).program, {.locations = options_.locations});
  }

 private:
  static PipelineResult passed(const Program& forward, const RunSpec& spec,
                               const PassContext& context) {
    if (context.stop_after == kStart) return {forward, {}};
    return run_pipeline(forward, spec, context);
  }

  const ShowOptions& options_;
  RunSpec spec_;
  std::unique_ptr<Device> device_;
};

constexpr std::string_view kProgramMark = "; tracestep.program/1\n";  // a comment of its language

Table pass_table(const std::vector<PassReport>& reports) {
  Table table{.name = "passes",
              .title = "What each pass did",
              .columns = {col::pass, bool_column("ran"), bool_column("changed"),
                          with_digits(2, col::ms), int_column("nodes_before", "nodes before"),
                          int_column("nodes_after", "after"), col::doc.titled("what it does")}};
  for (const PassReport& r : reports) {
    table.add_row({r.name, r.ran, r.changed, r.ms, r.nodes_before, r.nodes_after, r.doc});
    if (!r.note.empty()) table.notes.push_back(r.name + " " + r.note);
  }
  return table;
}

int count_of_views(const ShowOptions& o) {
  return (o.passes ? 1 : 0) + (o.ops_list ? 1 : 0) + (o.devices ? 1 : 0) +
         (o.diff.empty() ? 0 : 1) + (o.docs.empty() ? 0 : 1) + (o.after.empty() ? 0 : 1);
}

// Writes plain text. `mark`: the first line of a file that a later run may replace; pages of the
// documentation say themselves what they were written by.
void show_text(const ShowOptions& o, const std::string& text, std::string_view mark = {}) {
  const bool is_page = !o.docs.empty() && o.output.format == Format::kMarkdown;
  if (o.output.format != Format::kText && (!is_page || o.output.is_format_given)) {
    throw Error(ErrorCode::kUsage, o.output.is_format_given ? "--format" : "--output",
                "a program is plain text",
                "--format goes with --passes, --ops-list and --devices, json with --docs cli");
  }
  write_text(o.output.path.empty() ? text : std::string(mark) + text, o.output.path);
}

int run_show(const ShowOptions& o, std::span<const std::string> arguments) {
  if (count_of_views(o) > 1) {
    fail_usage("show", "give one of --after, --diff, --passes, --ops-list, --devices and --docs");
  }
  const RunSpec run = run_of(o.grid, Takes::kAll, DeviceUse::kRun, Ranks::kUsed);
  probe_output(o.output);
  if (o.docs == "ops") return show_text(o, ops_page()), 0;
  if (o.docs == "man") return show_text(o, manual_page(all_commands())), 0;
  if (o.docs == "claims") return ops::register_all(), show_text(o, claims_page()), 0;
  if (o.docs == "cli" && o.output.format == Format::kJson) {
    return write_text(cli_listing(all_commands()).dump(1) + "\n", o.output.path), 0;
  }
  if (o.docs == "cli") return show_text(o, cli_reference(all_commands())), 0;
  const Json environment = environment_of(arguments, run);
  if (o.ops_list) return write_tables(o.output, "tracestep.ops/1", environment, {ops_table()}), 0;
  if (o.devices) {
    write_tables(o.output, "tracestep.devices/1", environment, {device_table()});
    return 0;
  }
  const Pipeline pipeline(o, run);
  if (o.passes) {
    write_tables(o.output, "tracestep.passes/1", environment,
                 {pass_table(pipeline.run("").reports)});
  } else if (!o.diff.empty()) {
    const std::string difference =
        program_diff(pipeline.text(o.diff.front()), pipeline.text(o.diff.back()));
    show_text(o, difference.empty() ? "no difference\n" : difference, kProgramMark);
  } else {
    show_text(o, pipeline.text(o.after), kProgramMark);
  }
  return 0;
}

void add_show_options(OptionSet& set, ShowOptions& o) {
  const auto names = std::make_shared<std::vector<std::string>>(pass_names(true));
  set.group("What to show");
  add_fields(set, o.grid, FieldGroup::kStep, Values::kOne);
  set.value("--after", "PASS",
            "show the program after this pass (start: before the first) instead of after the last",
            [&o, names](const std::string& where, const std::string& text) {
              check_choice(where, text, *names);
              o.after = text;
            });
  set.values("--diff", "PASS PASS", 2, 2,
             "show what changed from after the first of these passes to after the second",
             [&o, names](const std::string& where, const std::string& text) {
               check_choice(where, text, *names);
               o.diff.push_back(text);
             });
  set.choices("--disable", o.disabled, pass_names(false), "passes to leave out");
  set.toggle("--passes", o.passes, "a table of the passes: time, nodes, whether they changed it");
  set.toggle("--locations", o.locations, "add the source line that made each node");
  set.toggle("--ops-list", o.ops_list, "a table of all ops");
  set.toggle(
      "--devices", o.devices,
      "a table of the devices that --published takes: peaks, memory, links, and their source");
  set.choice("--docs", o.docs, {"ops", "cli", "claims", "man"},
             "print a generated page of docs/, or the manual page; cli also with --format json");
}

}  // namespace

Command show_command() {
  const auto options = std::make_shared<ShowOptions>();
  Command command{.name = "show"};
  add_show_options(command.options, *options);
  add_fields(command.options, options->grid, FieldGroup::kModel, Values::kOne);
  add_fields(command.options, options->grid, FieldGroup::kHow, Values::kOne,
             "its kernels decide which ops are expanded: null (has all), cpu, cuda or reference");
  add_output_options(command.options, options->output);
  options->output.own_endings = {".1"};  // of the manual page
  runs_with(command, options, run_show);
  return command;
}

}  // namespace tracestep::cli
