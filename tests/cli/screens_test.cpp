// Checks the one screen of each task in README.md's table, at 80, 100 and 160 columns and into a
// pipe: the answer in a sentence with a figure, then one table with the columns that are asked for.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/on_terminal.h"
#include "cli/run_binary.h"
#include "lab/pages/first_answer.h"
#include "lab/report/writers.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kModel =
    " --d-model 16 --d-ff 32 --layers 4 --heads 2 --vocab 64 --context 8 --batch 2 --threads 1";

struct Screen {
  const char* command;  // MODEL stands for a small model, FOLDER for that of the test, …
  std::vector<const char*> asked = {};  // headers
  bool has_answer = true;
  const char* before = nullptr;  // a command whose JSON is FOLDER/before.json, or
                                 // one that writes the job array FOLDER/jobs, whose tasks then run
  bool is_whole = false;         // tables that were asked for by name are not cut
};

const char* const kTrain =
    "train --text TEXT --d-model 16 --d-ff 32 --layers 2 --heads 2 --context 8 --batch 2 --steps 2 "
    "--threads 1 --save FOLDER/weights";
const char* const kBench = "bench MODEL --steps 6 --warmup 1 --roof 0";
const char* const kJobs =
    "bench MODEL --mode forward,step --steps 6 --warmup 1 --roof 0 --sbatch FOLDER/jobs";

std::vector<Screen> screens() {
  return {
      {"bench MODEL --mode forward,forward-backward,step --steps 6 --warmup 1 --roof 0",
       {"mode", "mean (ms)", "std (ms)", "peak", "tokens/s"}},
      {"bench MODEL --warmup-study 0,1,2 --steps 3 --roof 0",
       {"warm-up", "mean (ms)", "std (ms)", "1st (ms)", "2nd (ms)"}},
      {"profile MODEL --mode inference,step --plain-steps 3 --steps 2 --warmup 1 --no-ceilings",
       {"pass", "kernels (ms)", "products (%)", "top kernel", "its share (%)"}},
      {"profile MODEL --mode step --plain-steps 3 --steps 2 --warmup 1 --no-ceilings",
       {"part", "op", "calls", "time (ms)", "share (%)"}},
      {"precision MODEL --steps 6 --warmup 1",
       {"precision", "median (ms)", "speed-up (x)", "is", "p", "peak"}},
      {"bench MODEL --precision fp32,bf16 --steps 6 --warmup 1 --roof 0",
       {"precision", "mean (ms)", "std (ms)", "peak"}},
      {"memory MODEL --cost-steps 0 --pictures FOLDER/pictures",
       {"category", "measured at the peak", "share (%)"}},
      {"memory MODEL --cost-steps 0 --snapshot FOLDER/step.pickle", {"category", "share (%)"}},
      {"memory MODEL --cost-steps 0 --tables largest,holders",
       {"path", "op", "source", "bytes"},
       true,
       nullptr,
       true},
      {"attention --context 16,32 --width 8,16 --batch 2 --steps 3 --threads 1",
       {"width", "context", "forward (ms)", "backward (ms)", "before backward"}},
      {"attention --attention naive,flash --context 16,32 --width 16 --batch 2 --steps 3 --threads "
       "1",
       {"attention", "forward (ms)", "backward (ms)", "before backward"}},
      {"compile --part steps MODEL --mode step --steps 2 --warmup 1",
       {"ops", "executor", "median (ms)", "against eager (x)", "peak"}},
      {"compile --part steps MODEL --mode forward,forward-backward,step --steps 2 --warmup 1",
       {"mode", "ops", "executor", "median (ms)", "against eager (x)", "is", "peak"}},
      {"compile --part ladder MODEL --steps 2 --warmup 1 --rungs bf16,flash --error-layers 0",
       {"rung", "median (ms)", "against row above (x)", "peak"}},
      {"memory --predict MODEL --recompute none,blocks,nested",
       {"recompute", "predicted peak", "saved"}},
      {"memory --predict --size small --memory-limit 2GiB", {"flags", "predicted peak"}},
      {"fit --size small --memory-limit 24GiB --published H100",
       {"status", "predicted peak", "limit", "to spare"}},
      {"fit --size small --memory-limit 2GiB --published H100", {"flags", "predicted peak"}},
      {"fit --size small --memory-limit 24GiB --published H100 --largest batch",
       {"change", "largest batch"}},
      {"bench MODEL --parallel dp=2,tp=2 --steps 6 --warmup 1 --roof 0",
       {"parallel", "mean (ms)", "collectives (ms)", "exposed (ms)"}},
      {"memory --predict --batch 4 --size tiny --context 16 --parallel dp=4,shard=3",
       {"category", "predicted at the peak", "share (%)"}},
      {"predict --published H200 --size tiny --batch 4 --parallel dp=4,shard=3 --link-gb-s 300",
       {"predicted (ms)", "from (ms)", "to (ms)", "predicted peak"}},
      {"comm --collective all_reduce --ranks 2,4 --bytes 1MiB --calls 20",
       {"ranks", "median (ms)", "bus (GB/s)"}},
      {"compare FOLDER/before.json --published", {"compared", "agree", "suspicious"}, true, kBench},
      {"compare FOLDER/before.json FOLDER/before.json", {"row", "verdict", "B / A"}, true, kBench},
      {"explain warm-up --from FOLDER/before.json", {"what", "value"}, true, kBench},
      {"explain oom --size tiny", {"what", "formula", "value"}},
      {"throughput --d-model 16 --d-ff 32 --layers 2 --heads 2 --vocab 64 --context 8 --threads 1 "
       "--batch 1,2,4 --steps 6",
       {"batch", "mean (ms)", "tokens/s", "peak"}},
      {"pivot FOLDER/before.json --across context", {"size", "context 8"}, false, kBench},
      {"launch -n 2 -- PROGRAM bench MODEL --parallel dp=2 --steps 6 --warmup 1 --roof 0",
       {"parallel", "mean (ms)", "peak"}},
      {"train --text TEXT --d-model 16 --d-ff 32 --layers 2 --heads 2 --context 8 --batch 2 "
       "--steps 4 "
       "--threads 1",
       {"steps", "first loss", "last loss", "tokens/s"}},
      {"eval --init FOLDER/weights --text TEXT --threads 1",
       {"loss", "bits per byte"},
       true,
       kTrain},
      {"compare --run 'PROGRAM bench MODEL --steps 6 --warmup 1 --roof 0' --run 'PROGRAM bench "
       "MODEL "
       "--steps 6 --warmup 1 --roof 0' --processes 2",
       {"row", "verdict", "B / A"}},
      {"study --from STUDY --output-dir FOLDER/study", {}},
      {"study --from STUDY --course --output-dir FOLDER/study", {}},
      {"merge FOLDER/jobs", {"mode", "mean (ms)", "std (ms)", "peak"}, true, kJobs},
  };
}

class ScreensTest : public ::testing::TestWithParam<Screen> {
 protected:
  std::string filled(std::string command) const {
    const std::pair<std::string, std::string> names[] = {
        {"MODEL", kModel + 1},
        {"FOLDER", folder_.path().string()},
        {"PROGRAM", testing::program_path()},
        {"TEXT", testing::source_folder() / "README.md"},
        {"STUDY", testing::source_folder() / "bench/results/study-h200/study.html"}};
    for (const auto& [name, value] : names) {
      for (std::size_t at; (at = command.find(name)) != std::string::npos;) {
        command.replace(at, name.size(), value);
      }
    }
    return command;
  }
  // A study draws pictures, and where a converter is there that takes two thirds of its time.
  std::vector<std::string> environment() const {
    const bool is_study = std::string_view(GetParam().command).starts_with("study ");
    return is_study ? std::vector{"PATH=" + folder_.path().string()} : std::vector<std::string>{};
  }
  void SetUp() override {
    if (GetParam().before == nullptr) return;
    const std::string before = filled(GetParam().before);
    const bool is_array = before.find("--sbatch") != std::string::npos;
    const std::string output = " --format json --output " + (folder_ / "before.json").string();
    ASSERT_EQ(run_tracestep(words_of(before + (is_array ? "" : output))).status, 0);
    for (const char* task : {"0", "1"}) {
      if (!is_array) break;
      const std::string run = fmt::format("cd {} && SLURM_ARRAY_TASK_ID={} bash tasks-1.sh",
                                          (folder_ / "jobs").string(), task);
      ASSERT_EQ(std::system(run.c_str()), 0) << run;
    }
  }

  TempFolder folder_;
};

// The lines as wide as a screen, which a longer one takes several of.
std::size_t lines_on(const std::string& text, std::size_t width) {
  std::size_t out = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    out += std::max<std::size_t>(1, (display_width(line) + width - 1) / width);
  }
  return out;
}

void check(const Screen& screen, const std::string& shown, std::size_t width) {
  if (!screen.is_whole) {
    EXPECT_LE(lines_on(shown, width), 40u) << shown;
  }
  const std::string first = shown.substr(0, shown.find('\n'));
  if (screen.has_answer) {
    const std::string answer = shown.substr(0, shown.find("\n\n"));
    EXPECT_THAT(answer, ContainsRegex("[0-9]")) << shown;
    EXPECT_THAT(answer, ::testing::MatchesRegex("[A-Za-z](.|\n)*"));
  }
  const std::vector<std::string> headers = headers_of(shown);
  for (const char* asked : screen.asked) EXPECT_THAT(headers, Contains(asked)) << shown;
  if (std::string_view(screen.command).starts_with("fit ")) {
    EXPECT_THAT(shown, Not(HasSubstr("…"))) << "flags are there to be copied";
    EXPECT_THAT(shown, ContainsRegex("context (512, fp32|2048, bf16)"));
  }
  for (const char* code : {"too_few", "others_running", "doubt:", "invalid"}) {
    EXPECT_THAT(shown, Not(HasSubstr(code)));
  }
}

TEST_P(ScreensTest, TheAnswerAndItsColumnsFitOnATerminal) {
  if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
  constexpr unsigned short kWidths[] = {80, 100, 160};
  for (const unsigned short width : kWidths) {
    std::vector<std::string> more = environment();
    more.insert(more.end(), {"NO_COLOR=1", "LC_ALL=C.UTF-8"});
    const std::string shown = on_terminal(filled(GetParam().command), width, std::move(more));
    check(GetParam(), shown, width);
    std::istringstream in(shown);
    const std::size_t most = GetParam().has_answer ? std::min<std::size_t>(width, 100) : width;
    for (std::string line; std::getline(in, line);) EXPECT_LE(display_width(line), most) << line;
  }
}

TEST_P(ScreensTest, IntoAPipeItIsTheSameWithoutColour) {
  const ProgramRun run =
      run_tracestep(words_of(filled(GetParam().command)), {.environment = environment()});
  ASSERT_EQ(run.status, 0) << run.err;
  check(GetParam(), run.out, 100);
  EXPECT_THAT(run.out, Not(HasSubstr("\x1b")));
}

// Names of a page exist in the result of the command whose answer it gives.
TEST_P(ScreensTest, NoPageAsksForAColumnThatTheResultLacks) {
  const bool has_page = GetParam().has_answer && !GetParam().asked.empty();
  if (!has_page) GTEST_SKIP() << "its answer is no page of a result";
  const ProgramRun run = run_tracestep(words_of(filled(GetParam().command) + " --format json"));
  ASSERT_EQ(run.status, 0) << run.err;
  const Json json = Json::parse(run.out, "result");
  const auto& pages = pages::answer_pages(json.at("schema").as_string());
  ASSERT_FALSE(pages.empty());
  std::vector<std::pair<std::string, const Json*>> tables;
  if (const Json* several = json.find("tables")) {
    for (const auto& [name, table] : several->members()) {
      tables.emplace_back(name.substr(0, name.find('@')), &table);
    }
  } else {
    tables.emplace_back("", &json);  // the only table of a result has no name there
  }
  // Pages of one schema differ in what they ask for; each table is what one of them expects.
  const auto is_expected = [&](const std::string& name, const Json& rows) {
    const Json& row = rows.at("rows").items()[0];
    return std::ranges::any_of(pages, [&](const pages::Page& page) {
      const auto asked = pages::names_in(page);
      const auto is_of = [&](const auto& pair) {
        const auto& main = pages::shown_by(page);
        return pair.first == name || (name.empty() && !main.empty() && pair.first == main[0].table);
      };
      return std::ranges::any_of(asked, is_of) && std::ranges::all_of(asked, [&](const auto& pair) {
               return !is_of(pair) || pair.second.empty() || row.find(pair.second) != nullptr;
             });
    });
  };
  std::size_t seen = 0;
  for (const auto& [name, rows] : tables) {
    const auto names_it = [&](const pages::Page& page) {
      const auto asked = pages::names_in(page);
      return std::ranges::any_of(asked, [&](const auto& pair) { return pair.first == name; });
    };
    const bool is_asked = name.empty() || std::ranges::any_of(pages, names_it);
    if (!is_asked || rows->at("rows").items().empty()) continue;
    EXPECT_TRUE(is_expected(name, *rows)) << name;
    ++seen;
  }
  EXPECT_GT(seen, 0u);
}

std::string name_of_screen(const ::testing::TestParamInfo<Screen>& info) {
  std::string out = std::to_string(info.index) + "_";
  for (char c : std::string(info.param.command).substr(0, 40)) {
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Tasks, ScreensTest, ::testing::ValuesIn(screens()), name_of_screen);

// "memory" with its flags, "--predict" and "--memory-limit"; flags of a command behind "--" are its
// own.
std::pair<std::string, std::set<std::string>> name_and_flags(const std::string& command) {
  const std::vector<std::string> words = words_of(command);
  std::pair<std::string, std::set<std::string>> out{words.at(0), {}};
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.starts_with("--")) out.second.insert(word);
  }
  return out;
}

TEST(ScreenTest, EveryTaskOfTheReadmeHasAScreen) {
  // They answer no question, or need a published model, which models_test.cpp has.
  const std::set<std::string> elsewhere = {"show", "generate", "export", "read", "pivot", "launch"};
  std::vector<std::pair<std::string, std::set<std::string>>> shown;
  const auto add = [&](std::string command) {
    const std::size_t model = command.find("MODEL");
    if (model != command.npos) command.replace(model, 5, kModel + 1);
    shown.push_back(name_and_flags(command));
  };
  for (const Screen& screen : screens()) {
    add(screen.command);
    if (screen.before != nullptr) add(screen.before);
  }
  std::istringstream readme(content_of(testing::source_folder() / "README.md"));
  bool is_table = false;
  std::size_t seen = 0;
  for (std::string line; std::getline(readme, line);) {
    is_table = line.starts_with("| task ") || (is_table && line.starts_with("|"));
    const std::size_t commands = line.find('|', 1);
    if (!is_table || commands == line.npos) continue;
    for (std::size_t at = line.find('`', commands); at != line.npos; at = line.find('`', at + 1)) {
      const std::size_t end = line.find('`', at + 1);
      auto [name, flags] = name_and_flags(line.substr(at + 1, end - at - 1));
      at = end;
      flags.erase("--size");     // that of MODEL
      flags.erase("--program");  // program_test.cpp has those of a module
      flags.erase("--output");
      if (flags.contains("--data")) continue;  // documents_test.cpp has those of documents
      if (elsewhere.contains(name) || (name == "train" && flags.contains("--model"))) continue;
      EXPECT_TRUE(std::ranges::any_of(shown, [&](const auto& one) {
        return one.first == name && std::ranges::includes(one.second, flags);
      })) << line;
      ++seen;
    }
  }
  EXPECT_GE(seen, 25u);
}

TEST(ScreenTest, AllShowsEveryTableAndTablesTheChosenOnes) {
  const std::string command = "memory --predict --size tiny --context 16";
  const std::string one = run_tracestep(words_of(command)).out,
                    all = run_tracestep(words_of(command + " --all")).out,
                    chosen = run_tracestep(words_of(command + " --tables largest,phases")).out;
  EXPECT_THAT(one, HasSubstr("more: tables memory, phases"));
  EXPECT_THAT(one, Not(HasSubstr("Peak per phase")));
  for (const char* title : {"Bytes of a step", "Peak per phase", "Who holds the peak"}) {
    EXPECT_THAT(all, HasSubstr(title));
  }
  EXPECT_THAT(chosen, HasSubstr("The largest buffers"));
  EXPECT_THAT(chosen, Not(HasSubstr("Bytes by category")));
  const ProgramRun wrong =
      run_tracestep(words_of("fit --size tiny --memory-limit 24GiB --tables remedy"));
  EXPECT_EQ(wrong.status, 0) << "what was computed is not lost";
  EXPECT_THAT(wrong.err, HasSubstr("[--tables] there is no table remedy here"));
}

TEST(ScreenTest, FilesAndOtherFormatsHaveEverything) {
  const TempFolder folder;
  const std::string command = "memory --predict --size tiny --context 16 ";
  const std::string file = (folder / "all.txt").string();
  ASSERT_EQ(run_tracestep(words_of(command + "--output " + file)).status, 0);
  EXPECT_THAT(content_of(file), HasSubstr("Who holds the peak"));
  EXPECT_THAT(run_tracestep(words_of(command + "--format markdown")).out,
              HasSubstr("### Who holds the peak"));
}

TEST(ScreenTest, ShortHelpIsOneScreenOfEveryCommand) {
  for (const cli::Command& command : cli::all_commands()) {
    const ProgramRun run = run_tracestep({command.name, "-h"});
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.out, cli::short_help(command));
    EXPECT_LE(lines_on(run.out, 100), 26u) << run.out;
    EXPECT_THAT(run.out, HasSubstr(command.summary));
    EXPECT_THAT(run.out, HasSubstr("tracestep help " + command.name + " has all options"));
    for (const std::string& help : {run.out, cli::help_text(command)}) {
      const std::size_t examples = help.find("Examples:"), option = help.find("\n  --");
      EXPECT_LT(command.examples.empty() ? 0 : examples, option) << help;
    }
  }
  EXPECT_THAT(run_tracestep({"-h"}).out, HasSubstr("  fit "));
  EXPECT_THAT(run_tracestep({"eval", "-h"}).out, HasSubstr("\n  --init "));
  for (const char* flag : {"--recipe", "--validate-every", "--sample-every", "--checkpoint"}) {
    EXPECT_THAT(run_tracestep({"train", "-h"}).out, HasSubstr(std::string("\n  ") + flag + " "));
  }
  EXPECT_LE(lines_on(run_tracestep({"-h"}).out, 100), 42u);
}

TEST(ScreenTest, WhatTakesMinutesSaysSoBeforeItStarts) {
  if (const std::string why = no_terminal(); !why.empty()) GTEST_SKIP() << why;
  // Long by its FLOPs, and over at once: nothing fits.
  const std::string command =
      "bench --size 2.7B --context 1024,2048 --memory-limit 100MiB --steps 100 --roof 0";
  EXPECT_THAT(on_terminal(command, 100, {}, STDERR_FILENO),
              HasSubstr("bench: this may take about "));
  EXPECT_THAT(on_terminal("bench --device null --size tiny --context 8", 100, {}, STDERR_FILENO),
              Not(HasSubstr("may take")));
}

}  // namespace
}  // namespace tracestep
