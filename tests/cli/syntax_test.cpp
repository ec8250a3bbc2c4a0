// The syntax of command lines, over all commands and their flags: a value is taken as it is, and
// nothing that follows a flag is taken for a value that is not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/shell_words.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/request.h"
#include "cli/run_binary.h"
#include "cli/syntax.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using cli::Words;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Words that a parser or a shell could take for something else.
const Words kHostile{"-",       "-x",  "--",         "=",     "--save=PWNED", "--overwrite",
                     "--help",  "-h",  "--run=a; b", "a b",   "a\nb",         "%s",
                     "%%",      "{}",  "[a]",        "[a,b]", "{{run}}",      "@file",
                     "\u00e9 ", "'q'", "\"q\"",      "\\",    "$(x)",         "`x`",
                     "a=b",     "-n4", "\xff",       " ",     "--output",     "*"};

// The error of a command line, as "[flag] reason"; empty: it is read.
std::string refusal_of(const Words& words) {
  try {
    cli::parse_arguments(cli::all_commands(), words);
  } catch (const Error& error) {
    return fmt::format("[{}] {}", error.where(), error.message());
  }
  return {};
}

template <class F>
void for_each_flag(F f) {
  for (const cli::Command& command : cli::all_commands()) {
    for (const cli::Option& option : command.options.options()) {
      if (option.max_values > 0) f(command, option);
    }
  }
}

TEST(CommandLineTest, AnEmptyValueIsRefusedByItsFlagInEveryCommand) {
  int count = 0;
  for_each_flag([&](const cli::Command& command, const cli::Option& option) {
    const std::string expected = fmt::format("[{}] the value is empty", option.flag);
    EXPECT_EQ(refusal_of({command.name, option.flag + "="}), expected);
    EXPECT_EQ(refusal_of({command.name, option.flag + "=", "--overwrite"}), expected);
    EXPECT_EQ(refusal_of({command.name, option.flag, ""}), expected);
    ++count;
  });
  EXPECT_GT(count, 500);
  EXPECT_EQ(refusal_of({"launch", "-n=", "--", "train"}), "[-n] the value is empty");
}

TEST(CommandLineTest, NoFlagTakesTheNextOneForItsValue) {
  for_each_flag([&](const cli::Command& command, const cli::Option& option) {
    const std::vector<cli::Option>& options = command.options.options();
    for (const cli::Option& next : {options.front(), option, options.back()}) {
      const std::string missing = fmt::format("[{}] the value is missing", option.flag);
      EXPECT_EQ(refusal_of({command.name, option.flag, next.flag + "=1"}), missing) << next.flag;
      EXPECT_EQ(refusal_of({command.name, option.flag, next.flag}), missing) << next.flag;
    }
    EXPECT_EQ(refusal_of({command.name, option.flag, "--", "x"}),
              fmt::format("[{}] the value is missing", option.flag));
  });
}

TEST(CommandLineTest, ValuesAreTakenAsTheyAreAndWrittenSoThatTheyAreReadAgain) {
  for_each_flag([&](const cli::Command& command, const cli::Option& option) {
    if (option.min_values > 1) return;  // --diff, below
    for (const std::string& value : kHostile) {
      const Words words{command.name, option.flag + "=" + value};
      const cli::CommandLine line =
          cli::read_command_line(command.options, std::span(words).subspan(1));
      ASSERT_EQ(line.parts.size(), 1u) << words[1];
      EXPECT_EQ(line.parts[0].flag, option.flag);
      EXPECT_THAT(line.parts[0].values, ElementsAre(value));
      const cli::Request request(words);
      const Words written = request.words();
      EXPECT_EQ(cli::Request(written).value(option.flag), value) << words[1];
      EXPECT_EQ(cli::Request(written).words(), written);
    }
  });
  const Words diff{"show", "--diff=-a", "--diff=--b"};
  EXPECT_EQ(cli::Request(diff).words(), diff);
}

TEST(CommandLineTest, WordsBehindTheMarkAreNoFlags) {
  const cli::OptionSet none;
  const Words words{"a", "--", "--save=x", "--", ""};
  const cli::CommandLine line = cli::read_command_line(none, words);
  EXPECT_THAT(line.behind, ElementsAre("--save=x", "--", ""));
  const Words compare{"compare", "--margin", "3", "--", "--run=a", "-x"};
  EXPECT_EQ(cli::Request(compare).words(), compare);
  cli::Request more(compare);
  more.add("--published");
  more.set("--pairs", "-4");
  EXPECT_THAT(more.words(), ElementsAre("compare", "--margin", "3", "--published", "--pairs=-4",
                                        "--", "--run=a", "-x"));
  EXPECT_EQ(refusal_of({"compare", "--", "", "b"}), "[A] the value is empty");
  EXPECT_EQ(refusal_of({"compare", "--", "a", "b", "-c"}), "[compare] \"-c\" belongs to no option");
  EXPECT_THAT(refusal_of({"fit", "--", "--save=x"}),
              HasSubstr("\"--save=x\" belongs to no option"));
}

TEST(CommandLineTest, FilesWithNamesOfFlagsAreReadBehindTheMark) {
  const TempFolder folder;
  const ProgramRun made = run_tracestep(
      words_of("bench --device null --d-model 8 --d-ff 8 --layers 1 --heads 2 --vocab 64 --context "
               "8 --batch 1 --steps 6 --format json --output=--run=x"),
      {.folder = folder.path()});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "--run=x"));
  const ProgramRun compared =
      run_tracestep({"compare", "--", "--run=x", "--run=x"}, {.folder = folder.path()});
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(compared.err, HasSubstr("A and B are the same file"));
}

// Scripts write such a line when their variable is not set.
TEST(CommandLineTest, AVariableThatIsNotSetWritesNoFile) {
  const TempFolder folder;
  folder.write("t.txt", std::string(400, 'a'));
  const std::string tiny = " --d-model 8 --d-ff 8 --layers 1 --heads 2 --batch 1 --context 8 ";
  for (const auto& [line, said] :
       {std::pair{"train --text t.txt --steps 1" + tiny + "--save= --log-every=1",
                  "tracestep: [--save] the value is empty"},
        {"train --text t.txt --steps 1" + tiny + "--save --log-every=1",
         "tracestep: [--save] the value is missing; give --save FILE; if --log-every=1 is meant, "
         "write --save=--log-every=1"},
        {"bench --device null" + tiny + "--output= --overwrite",
         "tracestep: [--output] the value is empty"},
        {"launch -n 2 -- train --text t.txt" + tiny + "--save= --log-every=1",
         "tracestep: [--save] the value is empty"},
        {"bench --device null" + tiny + "--output= --overwrite --sbatch jobs",
         "tracestep: [--output] the value is empty"}}) {
    const ProgramRun run = run_tracestep(words_of(line), {.folder = folder.path()});
    EXPECT_EQ(run.status, 2) << line;
    EXPECT_THAT(run.err, StartsWith(said)) << line;
  }
  const std::filesystem::directory_iterator all(folder.path());
  EXPECT_EQ(std::distance(begin(all), end(all)), 1);
}

TEST(CommandLineTest, HelpIsGivenWhereverItIsAskedForBeforeTheMark) {
  const ProgramRun run = run_tracestep({"bench", "--save", "--batch", "x", "--help"});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("--batch"));
  EXPECT_EQ(run_tracestep({"compare", "--", "--help", "b"}).status, 3);
}

}  // namespace
}  // namespace tracestep
