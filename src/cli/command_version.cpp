// tracestep version: says which build this is.
#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/report/columns.h"

namespace tracestep::cli {
namespace {

int run_version(const OutputOptions& output, std::span<const std::string> arguments) {
  probe_output(output);
  const Json environment = environment_of(arguments, {});
  const auto text = [&](const char* key) {
    const Json& value = environment.at(key);
    return value.is_string() ? value.as_string() : "unknown";
  };
  if (output.format == Format::kText) {
    write_text(fmt::format("{} ({}, {}, commit {})\n", text("tool"), text("build_type"),
                           text("compiler"), text("commit")),
               output.path);
    return 0;
  }
  Table table{.name = "version",
              .columns = {text_column("tool"), text_column("build_type"), text_column("compiler"),
                          text_column("commit")}};
  table.add_row({text("tool"), text("build_type"), text("compiler"), text("commit")});
  write_tables(output, "tracestep.version/1", environment, {table});
  return 0;
}

}  // namespace

Command version_command() {
  const auto output = std::make_shared<OutputOptions>();
  Command command{.name = "version"};
  add_output_options(command.options, *output);
  runs_with(command, output, run_version);
  return command;
}

}  // namespace tracestep::cli
