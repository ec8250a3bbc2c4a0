// Collects all commands, each with the texts of its page.
#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/jobs.h"
#include "cli/pictures.h"
#include "lab/pages/first_answer.h"

namespace tracestep::cli {

#define EACH(NAME) Command NAME##_command();
#include "embedded/commands.inc"
#undef EACH

namespace {

constexpr Command (*kMakers[])() = {
#define EACH(NAME) NAME##_command,
#include "embedded/commands.inc"
#undef EACH
};

void read_page(Command& command) {
  const pages::Page& page = pages::command_page(command.name);
  const auto sections = help_sections();
  const auto section = std::ranges::find(sections, page.head[2]);
  TRACESTEP_CHECK(section != sections.end(), "{}: no heading \"{}\"", command.name, page.head[2]);
  command.section = static_cast<std::size_t>(section - sections.begin());
  command.summary = page.text("Question");
  command.details = page.text("Details");
  for (const auto& [label, text] : page.labelled) {
    if (label != "Example") continue;
    const std::vector<std::string> parts = pages::split(text, "|");
    TRACESTEP_CHECK(parts.size() == 2, "{}: \"{}\" is no example", command.name, text);
    command.examples.emplace_back(parts[0], parts[1]);
  }
}

}  // namespace

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> out;
    for (auto* make : kMakers) {
      out.push_back(make());
      read_page(out.back());
      add_pictures(out.back());
      if (out.back().run_cells) add_cells(out.back());
      if (out.back().plan) add_sbatch(out.back());
      out.back().options.show_flags();
    }
    std::ranges::stable_sort(out, {}, &Command::section);  // by name within each
    return out;
  }();
  return commands;
}

}  // namespace tracestep::cli
