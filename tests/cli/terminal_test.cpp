// Checks the view of a person at a terminal: columns that fit, colours that mean something,
// completions, pictures and the names of files.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/on_terminal.h"
#include "cli/pictures.h"
#include "cli/printed_pages.h"
#include "cli/run_binary.h"
#include "lab/report/writers.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tests that need a terminal. Where the system makes none (no /dev/pts), they say so.
class OnTerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(OnTerminalTest, ColumnsFitAndWhatIsLeftOutIsNamed) {
  const std::string command = "show --passes --size tiny";
  const std::string narrow = on_terminal(command, 50, {"NO_COLOR=1"}),
                    all = on_terminal(command + " --all", 50);
  EXPECT_THAT(narrow, HasSubstr("not shown for lack of width: "));
  EXPECT_THAT(narrow, HasSubstr("--all shows them"));
  EXPECT_THAT(all, Not(HasSubstr("not shown")));
  EXPECT_THAT(run_tracestep(words_of(command)).out, Not(HasSubstr("not shown")));  // in a pipe
}

TEST_F(OnTerminalTest, BothEndsOfAnIntervalAreShownOrNone) {
  const std::string command = "predict --published H200 --size tiny,small --precision fp32,bf16";
  constexpr unsigned short kWidths[] = {40, 48, 56, 64, 72, 80, 100, 120};
  int shown = 0;
  for (unsigned short width : kWidths) {
    const auto headers = headers_of(on_terminal(command, width, {"NO_COLOR=1"}));
    const bool has_low = std::ranges::find(headers, "from (ms)") != headers.end();
    EXPECT_EQ(has_low, std::ranges::find(headers, "to (ms)") != headers.end()) << width;
    if (width >= 80) {
      EXPECT_TRUE(has_low) << width;
    }
    shown += has_low;
  }
  EXPECT_LT(shown, 8);
}

TEST_F(OnTerminalTest, LongTextsGoOnInTheNextLine) {
  const std::string command = "explain residual-stream --size tiny";
  const std::string narrow = on_terminal(command, 72, {"NO_COLOR=1"});
  const std::string table = narrow.substr(0, narrow.find("\n\n", narrow.find("---")));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 72u) << line;
  EXPECT_THAT(table, HasSubstr("formula"));
  EXPECT_THAT(table, HasSubstr("value"));
  // Every word of it is there, on one line or another.
  const Json rows = Json::parse(run_tracestep(words_of(command + " --format json")).out, "");
  for (const Json& row : rows.at("rows").items()) {
    for (const std::string& word : words_of(row.at("what").as_string())) {
      EXPECT_THAT(table, HasSubstr(word));
    }
  }
}

TEST_F(OnTerminalTest, ColourMarksAStateUnlessItIsUnwanted) {
  const std::string command =
      "bench --device null --size tiny --context 16 --steps 1 --warmup 0 --columns size,status";
  EXPECT_THAT(on_terminal(command, 100), HasSubstr("\x1b[32mok"));
  EXPECT_THAT(on_terminal(command, 100, {"NO_COLOR=1"}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(run_tracestep(words_of(command)).out, Not(HasSubstr("\x1b")));
}

TEST_F(OnTerminalTest, WhatTakesLongSaysHowLongItStillTakes) {
  const std::string model = " --size tiny --threads 1 --format json";
  const std::string readme = (testing::source_folder() / "README.md").string();
  for (const std::string& command :
       {"bench --context 128 --steps 8 --warmup 0 --roof 0" + model,
        "eval --context 128 --batches 6 --text " + readme + model,
        "generate --prompt-tokens 1 --max-tokens 200" + model,
        std::string("comm --ranks 2 --bytes 4MiB --calls 400 --warmup 0 --format json")}) {
    const std::string shown = on_terminal(command, 200, {}, STDERR_FILENO);
    EXPECT_THAT(shown, ::testing::ContainsRegex("about [0-9]+ s left")) << command;
  }
}

TEST_F(OnTerminalTest, TheCurveOfALossIsALineOfWhatTheLocaleHas) {
  const std::string train =
      "train --steps 8 --d-model 16 --d-ff 16 --layers 1 --heads 2 --context 8 --batch 1 --lr 0.01 "
      "--text " +
      (testing::source_folder() / "LICENSE").string();
  EXPECT_THAT(on_terminal(train, 200, {"LC_ALL=C.UTF-8"}, STDERR_FILENO), HasSubstr("█"));
  EXPECT_THAT(on_terminal(train, 200, {"LC_ALL=C"}, STDERR_FILENO),
              ::testing::ContainsRegex("loss [0-9.]+ [#*+=~._-]+ [0-9.]+\n"));
  EXPECT_THAT(run_tracestep(words_of(train)).err, Not(HasSubstr("#")));  // in a pipe
}

TEST(TerminalTest, ColumnsAreChosenByNameInEveryFormat) {
  const std::string command = "memory --predict --size tiny --context 16 --format csv --columns ";
  EXPECT_THAT(run_tracestep(words_of(command + "predicted_peak_bytes,size")).out,
              ::testing::StartsWith("predicted_peak_bytes,size\r\n"));
  const ProgramRun unknown = run_tracestep(words_of(command + "sise"));
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("size"));
}

TEST(TerminalTest, AnAnswerOfNoComesWithTheSmallestChangeThatFits) {
  const ProgramRun run = run_tracestep(
      words_of("memory --predict --size tiny --context 512 --batch 8 --memory-limit 400MiB"));
  EXPECT_THAT(run.out, ::testing::StartsWith("It does not fit: at batch 8, context 512, "));
  EXPECT_THAT(run.out.substr(0, run.out.find('\n')), HasSubstr("; with --"));
}

TEST(TerminalTest, PicturesAreFilesOfTheirOwn) {
  const TempFolder folder;
  const ProgramRun run = run_tracestep(
      words_of("memory --predict --size tiny --context 16 --pictures " + folder.path().string()));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("pictures are in " + folder.path().string()));
  const bool has_converter = std::system("command -v rsvg-convert > /dev/null") == 0;
  int drawings = 0, images = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string text = content_of(entry.path());
    if (entry.path().extension() == ".svg") {
      ++drawings;
      EXPECT_THAT(text, ::testing::StartsWith("<svg xmlns"));
      EXPECT_THAT(text, ::testing::EndsWith("</svg>\n"));
    } else {
      ++images;
      EXPECT_THAT(text, ::testing::StartsWith("\x89PNG"));
    }
  }
  EXPECT_EQ(drawings, 2);
  EXPECT_EQ(images, has_converter ? 2 : 0);
}

TEST(TerminalTest, NamesOfPicturesSayWhatTheyShow) {
  EXPECT_EQ(cli::picture_name({.title = "Active memory, Ω", .table = "stack@tiny context 32 FP32"}),
            "stack-tiny-context-32-fp32");
}

TEST(TerminalTest, AFileThatIsWrittenIsNamed) {
  const TempFolder folder;
  const std::string file = (folder / "peaks.json").string();
  const ProgramRun run = run_tracestep(
      words_of("memory --predict --size tiny --context 16 --format json --output " + file));
  EXPECT_THAT(run.err, HasSubstr("the result is in " + file));
}

TEST(CompletionsTest, EveryFlagOfEveryCommandIsThereInEveryShell) {
  for (std::string_view shell : cli::kShells) {
    const std::string script = cli::completion_script(shell, cli::all_commands());
    EXPECT_EQ(run_tracestep({"completions", std::string(shell)}).out, script);
    EXPECT_LT(script.size(), 1u << 19) << shell;  // a shell reads all of it at the first tab
    for (const cli::Command& command : cli::all_commands()) {
      EXPECT_THAT(script, HasSubstr(command.name));
      for (const cli::Option& option : command.options.options()) {
        EXPECT_THAT(script,
                    HasSubstr(shell == "fish" ? "-l " + option.flag.substr(2) : option.flag));
      }
    }
  }
}

// The words that bash offers at the end of this line.
std::string offered(const TempFolder& folder, const std::string& line) {
  const std::string call =
      "bash -c 'source " + (folder / "script").string() + "; COMP_WORDS=(" + line +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tracestep; echo \"${COMPREPLY[*]}\"' > " +
      (folder / "out").string();
  EXPECT_EQ(std::system(call.c_str()), 0) << line;
  return content_of(folder / "out");
}

TEST(CompletionsTest, BashCompletesCommandsFlagsAndValues) {
  const TempFolder folder;
  folder.write("script", cli::completion_script("bash", cli::all_commands()));
  EXPECT_EQ(offered(folder, "tracestep mem"), "memory\n");
  EXPECT_EQ(offered(folder, "tracestep memory --snapshot-j"), "--snapshot-json\n");
  EXPECT_EQ(offered(folder, "tracestep memory --format mark"), "markdown\n");
  EXPECT_EQ(offered(folder, "tracestep bench --mode step,inf"), "step,inference\n");
  EXPECT_EQ(offered(folder, "tracestep help tra"), "train\n");
}

TEST(CompletionsTest, TheManualHasEveryCommand) {
  const std::string page = cli::manual_page(cli::all_commands());
  EXPECT_EQ(run_tracestep(words_of("show --docs man")).out, page);
  EXPECT_THAT(page, ::testing::StartsWith(".TH TRACESTEP 1\n"));
  for (const cli::Command& command : cli::all_commands()) {
    EXPECT_THAT(page, HasSubstr(".SS " + command.name + "\n"));
  }
}

}  // namespace
}  // namespace tracestep
