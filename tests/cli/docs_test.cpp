// The pages that the program writes about itself are the committed ones, and help works.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/run_binary.h"
#include "lab/report/writers.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

std::string committed(const char* page) {
  return content_of(testing::source_folder() / "docs" / page);
}

TEST(DocsTest, TheOpsPageIsWhatTheOpRecordsSay) {
  const ProgramRun run = run_tracestep(words_of("show --docs ops"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, committed("ops.md"))
      << "write it anew: tracestep show --docs ops --output docs/ops.md";
}

TEST(DocsTest, TheCommandLinePageIsWhatHelpSays) {
  EXPECT_EQ(cli::cli_reference(cli::all_commands()), committed("cli.md"))
      << "write it anew: tracestep show --docs cli --output docs/cli.md";
}

TEST(DocsTest, EveryOptionIsListedAsData) {
  const ProgramRun run = run_tracestep(words_of("show --docs cli --format json"));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json listed = Json::parse(run.out, "listing");
  ASSERT_EQ(listed.at("commands").size(), cli::all_commands().size());
  for (std::size_t i = 0; i < cli::all_commands().size(); ++i) {
    const cli::Command& command = cli::all_commands()[i];
    const Json& one = listed.at("commands").items()[i];
    EXPECT_EQ(one.at("name"), Json(command.name));
    ASSERT_EQ(one.at("options").size(), command.options.options().size());
    for (std::size_t k = 0; k < one.at("options").size(); ++k) {
      const cli::Option& option = command.options.options()[k];
      EXPECT_EQ(one.at("options").items()[k].at("flag"), Json(option.flag));
      EXPECT_EQ(one.at("options").items()[k].at("choices").size(), option.offered.size());
    }
  }
}

TEST(DocsTest, ThePageOfClaimsIsWhatTheirFormulasGive) {
  const ProgramRun run = run_tracestep(words_of("show --docs claims"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, committed("claims.md"))
      << "write it anew: tracestep show --docs claims --output docs/claims.md";
}

TEST(DocsTest, EveryCommandExplainsItselfWithExamples) {
  for (const cli::Command& command : cli::all_commands()) {
    const ProgramRun run = run_tracestep({command.name, "--help"});
    EXPECT_EQ(run.status, 0) << command.name;
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(run.out, cli::help_text(command));
    EXPECT_FALSE(command.summary.empty());
    if (command.name != "version") {
      EXPECT_TRUE(contains(run.out, "Examples:"));
    }
  }
  EXPECT_TRUE(contains(run_tracestep({"--help"}).out, "Usage: tracestep COMMAND"));
  EXPECT_TRUE(contains(run_tracestep({"--version"}).out, "tracestep "));
}

// The options that tell architectures apart are many and come with a model: one line of a command's
// help leads to them, and nothing else is left out.
TEST(DocsTest, HelpHasEveryOptionAndALineForThoseOfTheArchitecture) {
  const ProgramRun topic = run_tracestep({"help", "architecture"});
  EXPECT_EQ(topic.status, 0) << topic.err;
  std::size_t takers = 0;
  for (const cli::Command& command : cli::all_commands()) {
    const std::string help = run_tracestep({"help", command.name}).out;
    std::size_t left_out = 0;
    for (const cli::Option& option : command.options.options()) {
      const std::string line = "\n  " + option.flag + " ";
      if (contains(help, line)) continue;
      ++left_out;
      EXPECT_TRUE(contains(topic.out, line)) << option.flag;
    }
    if (left_out == 0) continue;
    ++takers;
    EXPECT_TRUE(contains(help, fmt::format("\n  {} options from ", left_out))) << help;
    EXPECT_TRUE(contains(help, ": tracestep help architecture\n")) << help;
    EXPECT_TRUE(contains(topic.out, command.name)) << topic.out;
  }
  EXPECT_GT(takers, 5u);
  EXPECT_TRUE(contains(run_tracestep({"help", "architectur"}).err, "did you mean architecture?"));
  const std::string manual = run_tracestep({"show", "--docs", "man"}).out;
  EXPECT_TRUE(contains(manual, ".SH ARCHITECTURE")) << manual.substr(0, 200);
}

TEST(DocsTest, HelpFitsIntoAHundredColumns) {
  for (const cli::Command& command : cli::all_commands()) {
    std::istringstream lines(cli::help_text(command));
    for (std::string line; std::getline(lines, line);) {
      // Examples stay on one line, so that they can be copied.
      if (line.starts_with("  tracestep ")) continue;
      EXPECT_LE(display_width(line), 100u) << line;
    }
  }
}

}  // namespace
}  // namespace tracestep
