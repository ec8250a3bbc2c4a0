// `tracestep study` as a person runs it: three files that say the same.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "lab/report/html.h"
#include "spec/fields.h"
#include "support/page_words.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Identifies a row by the members of its cell that a command is told, without the limit of memory.
std::string identity_of(const Json& cell) {
  constexpr std::string_view kMore[] = {"width", "attention_context", "mask", "saved",
                                        "warmup_study"};
  Json out = Json::object();
  for (const auto& [name, value] : cell.members()) {
    const bool is_told =
        find_field(name) != nullptr || std::ranges::find(kMore, name) != std::end(kMore);
    if (is_told && name != "memory_limit_bytes") out[name] = value;
  }
  return canonical_text(out);
}

std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t out = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    ++out;
  }
  return out;
}

// Adds the identity of a row's cell, or of the cells that it compares.
void add_identities(const Json& row, std::set<std::string>& out) {
  const Json* cell = row.find("cell");
  if (cell == nullptr) return;
  if (cell->is_object()) out.insert(identity_of(*cell));
  if (!cell->is_array()) return;
  for (const Json& one : cell->items()) out.insert(identity_of(one));
}

// The cells that the answer's rows are of.
std::set<std::string> cells_of(const Json& answer, const Json& tables) {
  std::set<std::string> out;
  for (const Json& ref : answer.at("rows").items()) {
    const auto index = static_cast<std::size_t>(ref.at("row").as_int());
    add_identities(tables.at(ref.at("table").as_string()).at("rows").items()[index], out);
  }
  return out;
}

// The flags that make the command measure as little as it can: cells that need gigabytes not at
// all.
std::string briefly(const std::string& command) {
  if (command.find("--predict") != std::string::npos) return {};
  if (command.find("--warmup-study") != std::string::npos) return " --roof 0";
  const std::map<std::string, std::string> flags = {
      {"bench", " --steps 1 --warmup 0 --roof 0"},
      {"profile", " --steps 1 --plain-steps 1 --warmup 0 --no-ceilings"},
      {"memory", " --warmup 0 --cost-steps 0"},
      {"attention", " --steps 1 --warmup 0 --memory-limit 1GiB"},
      {"compile", " --steps 1 --warmup 0 --error-layers 1 --error-tokens 4"},
      {"precision", " --steps 1 --warmup 0 --error-layers 1 --error-tokens 4"}};
  const auto found = flags.find(words_of(command)[1]);
  return found == flags.end() ? std::string() : found->second;
}

// The cells of all tables that the commands print.
std::set<std::string> cells_when_run(std::string commands) {
  std::set<std::string> out;
  while (!commands.empty()) {
    const std::size_t end = std::min(commands.find(" && "), commands.size());
    const std::string own = commands.substr(0, end);
    commands.erase(0, std::min(end + 4, commands.size()));
    const ProgramRun run = run_tracestep(
        words_of(own.substr(std::string("tracestep ").size()) + briefly(own) + " --format json"));
    EXPECT_EQ(run.status, 0) << own << "\n" << run.err;
    if (run.status != 0) continue;
    const Json result = Json::parse(run.out, own);
    for (const Json& row : result.at("rows").items()) add_identities(row, out);
    const Json* tables = result.find("tables");
    if (tables == nullptr) continue;
    for (const auto& [name, table] : tables->members()) {
      for (const Json& row : table.at("rows").items()) add_identities(row, out);
    }
  }
  return out;
}

// Every command that measures an answer's rows again runs, and measures those cells.
void expect_commands_to_measure_again(const Json& tables) {
  std::map<std::string, std::set<std::string>> cells_by_command;
  for (const Json& answer : tables.at("answers").at("rows").items()) {
    const std::string& command = answer.at("command").as_string();
    if (answer.at("refused").as_bool() || command == "tracestep study") continue;
    cells_by_command[command].merge(cells_of(answer, tables));
  }
  for (const auto& [command, cells] : cells_by_command) {
    const std::set<std::string> measured = cells_when_run(command);
    EXPECT_TRUE(cells.empty() || measured == cells)
        << command << "\nmeasured " << ::testing::PrintToString(measured) << "\nnot "
        << ::testing::PrintToString(cells);
  }
  EXPECT_GE(cells_by_command.size(), 3u);
}

// Does as a student with a study that was measured elsewhere.
void expect_a_hand_in_of(const fs::path& study) {
  const TempFolder temp;
  const fs::path times = temp.write("times.csv",
                                    "size,context,mode,precision,mean_ms,std_ms,n\n"
                                    "small,128,forward,fp32,21.4,0.2,10\n"
                                    "mine,64,step,fp32,10,1,5\n");
  const fs::path out = temp.path() / "out";
  const std::string command = "study --from " + study.string() + " --output-dir " + out.string();
  const ProgramRun run = run_tracestep(words_of(command + " --course --mine " + times.string()));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("mine 64 step fp32 (line 3)"));
  EXPECT_THAT(run.out, HasSubstr("with the letter of the write-up and its table"));
  for (const char* file : {"course.md", "course.tex", "course.typ"}) {
    EXPECT_THAT(text_of(out / file), HasSubstr("Problem 1.1.3 b")) << file;
  }
  EXPECT_TRUE(Json::parse(text_of(out / "study.json"), "again") ==
              Json::parse(text_of(study.parent_path() / "study.json"), "first"));
  EXPECT_EQ(run_tracestep(words_of(command + " --mine " + times.string())).status, 2);
  const fs::path none = temp.path() / "none";
  const std::string no_study = "study --from " + times.string() + " --output-dir ";
  EXPECT_EQ(run_tracestep(words_of(no_study + none.string())).status, 3);
  EXPECT_FALSE(fs::exists(none));
}

// In a study's folder, the page and its answers are no longer than a person reads; `words` of an
// answer in the mean.
void expect_short(const fs::path& folder, std::size_t words) {
  const testing::PageWords page = testing::words_of_page(text_of(folder / "study.html"));
  EXPECT_LE(page.before, 1600u);
  const Json data = Json::parse(text_of(folder / "study.json"), "study.json");
  const auto& answers = data.at("tables").at("answers").at("rows").items();
  EXPECT_LE(page.all, 120 * answers.size());
  std::size_t all = 0, answered = 0;
  for (const Json& answer : answers) {
    if (answer.at("refused").as_bool()) continue;
    const std::size_t count = 1 + count_of(answer.at("answer").as_string(), " ");
    EXPECT_LE(count, 80u) << answer.at("answer").as_string();
    all += count;
    ++answered;
  }
  EXPECT_GT(answered, 10u);
  EXPECT_LE(all, words * answered);
}

TEST(StudyTest, TheStoredStudyOfAGpuIsShortAndItsPageSmall) {
  const TempFolder temp;
  const fs::path stored = testing::source_folder() / "bench/results/study-h200/study.html";
  const ProgramRun run = run_tracestep(
      words_of("study --from " + stored.string() + " --output-dir " + temp.path().string()));
  ASSERT_EQ(run.status, 0) << run.err;
  expect_short(temp.path(), 35);
  EXPECT_LT(fs::file_size(temp.path() / "study.html"), 1'300'000u);
  EXPECT_TRUE(result_of_page(text_of(temp.path() / "study.html"), "study.html") ==
              Json::parse(text_of(temp.path() / "study.json"), "study.json"));
}

TEST(StudyTest, WritesAPageWithTheNumbersOfItsJsonAndSaysWhatItLeftOut) {
  const TempFolder temp;
  const fs::path folder = temp.path();
  const ProgramRun run = run_tracestep(
      words_of("study --quick --minutes 0.25 --train-steps 2 --threads 1 --parallel dp=2 "
               "--output-dir " +
               folder.string() + " --all --pictures " + (folder / "pictures").string()),
      {.folder = testing::source_folder()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("What do sums in float32, float16 and mixed formats give?"));
  EXPECT_THAT(run.out, HasSubstr("9.953125"));
  const Json data = Json::parse(text_of(folder / "study.json"), "study.json");
  const std::string page = text_of(folder / "study.html");
  EXPECT_TRUE(result_of_page(page, "study.html") == data);
  EXPECT_THAT(text_of(folder / "study.md"), HasSubstr("## 1.1.3 Time"));
  EXPECT_THAT(text_of(folder / "study.tex"), HasSubstr("\\section*{1.1.3 Time}"));
  EXPECT_THAT(text_of(folder / "study.tex"), ::testing::EndsWith("\\end{document}\n"));
  EXPECT_THAT(text_of(folder / "study.typ"), HasSubstr("== #\"1.1.3 Time\";"));
  EXPECT_THAT(run.err, HasSubstr(" at most)"));
  EXPECT_THAT(run.err, HasSubstr(" on README.md, docs, src"));
  EXPECT_THAT(page, HasSubstr("models: tiny (vocabulary 256: one token a byte)"));
  expect_short(folder, 40);  // on a busy machine more of them tell of doubts
  for (const char* file : {"study.html", "study.md", "study.tex", "study.typ", "study.json"}) {
    EXPECT_THAT(run.err, HasSubstr((folder / file).string()));
  }
  EXPECT_TRUE(fs::exists(folder / "pictures" / "training.svg"));
  // A picture for each chart of the page, by a name of its own.
  std::size_t drawings = 0;
  for (const auto& entry : fs::directory_iterator(folder / "pictures")) {
    drawings += entry.path().extension() == ".svg";
  }
  EXPECT_EQ(drawings, count_of(page, "<figure"));
  EXPECT_GT(drawings, 8u);
  EXPECT_THAT(text_of(folder / "study.typ"), HasSubstr("#image(\"charts/training.svg\""));
  EXPECT_TRUE(fs::exists(folder / "charts" / "training.svg"));
  // The time given is short: parts are left out, and questions that need them are refused.
  EXPECT_EQ(data.at("schema").as_string(), "tracestep.study/2");
  for (const Json& part : data.at("tables").at("parts").at("rows").items()) {
    EXPECT_THAT((std::vector<std::string>{"done", "in part", "left out"}),
                ::testing::Contains(part.at("status").as_string()));
  }
  for (const Json& answer : data.at("tables").at("answers").at("rows").items()) {
    const bool is_no_answer = answer.at("answer").as_string().starts_with("No answer");
    EXPECT_EQ(answer.at("refused").as_bool(), is_no_answer) << answer.at("id").as_string();
  }
  EXPECT_EQ(data.at("tables").at("planned_ranks").at("rows").size(), 10u);
  expect_a_hand_in_of(folder / "study.html");
  expect_a_hand_in_of(folder / "study.json");
  expect_commands_to_measure_again(data.at("tables"));
}

TEST(StudyTest, APartThatRunsOutOfMemoryIsNamedAndTheOthersGoOn) {
  const TempFolder temp;
  const ProgramRun run = run_tracestep(
      words_of("study --quick --minutes 0.05 --train-steps 1 --threads 1 --memory-limit 60MiB "
               "--output-dir " +
               temp.path().string() + " --all"),
      {.folder = testing::source_folder()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("No answer: training ran out of memory"));
  const Json data = Json::parse(text_of(temp.path() / "study.json"), "study.json");
  std::map<std::string, std::string> status;
  for (const Json& part : data.at("tables").at("parts").at("rows").items()) {
    status[part.at("part").as_string()] = part.at("status").as_string();
    const bool is_out = part.at("status").as_string() == "out of memory";
    EXPECT_EQ(part.at("detail").is_null(), !is_out) << part.dump();
  }
  EXPECT_EQ(status["training"], "out of memory");
  EXPECT_EQ(status["number formats"], "done");
  EXPECT_TRUE(status.contains("review"));
}

// What a study says that no clock, machine or process decides: the rows of each table, and of cells
// their parameters and bytes. Some tables have their longest times first, so order is left out.
std::string exact_part_of(const fs::path& study) {
  std::string out;
  const Json data = Json::parse(text_of(study), "study.json");
  for (const auto& [name, table] : data.at("tables").members()) {
    std::vector<std::string> rows;
    for (const Json& row : table.at("rows").items()) {
      rows.emplace_back();
      for (const char* column : {"cell", "status", "peak_bytes", "launches", "warmup"}) {
        if (const Json* value = row.find(column)) rows.back() += value->dump() + " ";
      }
    }
    std::ranges::sort(rows);
    out += fmt::format("{}: {}\n", name, fmt::join(rows, "; "));
  }
  return out;
}

// The driver of cells is that of all commands.
TEST(StudyTest, AStudyThatWasKilledGoesOnAndProcessesMeasureTheSameCells) {
  const TempFolder temp;
  const fs::path rows = temp.path() / "rows.jsonl";
  const auto study = [&](const std::string& name, const std::string& more,
                         const std::function<void(pid_t)>& while_running = {}) {
    return run_tracestep(
        words_of("study --quick --minutes 60 --rounds 1 --train-steps 1 --threads 1 --output-dir " +
                 (temp.path() / name).string() + more),
        {.folder = testing::source_folder(), .while_running = while_running});
  };
  const auto rows_of_steps = [&] {
    const std::string text = fs::exists(rows) ? text_of(rows) : std::string();
    return count_of(text, "\"stage\":\"step tiny 256 2x32\"");
  };
  const std::string resumed = " --resume " + rows.string();
  study("resumed", resumed, [&](pid_t child) {
    while (rows_of_steps() < 5 && ::kill(child, 0) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ::kill(child, SIGKILL);
  });
  ASSERT_GE(rows_of_steps(), 5u);
  const std::string begun = text_of(rows);
  EXPECT_FALSE(fs::exists(temp.path() / "resumed" / "study.json"));
  ASSERT_EQ(study("resumed", resumed).status, 0);
  const std::string whole = text_of(rows);
  EXPECT_TRUE(whole.starts_with(begun.substr(0, begun.rfind('\n'))));
  // Nothing is left to measure.
  ASSERT_EQ(study("again", resumed).status, 0);
  EXPECT_EQ(text_of(rows), whole);
  const std::string exact = exact_part_of(temp.path() / "resumed" / "study.json");
  EXPECT_EQ(exact_part_of(temp.path() / "again" / "study.json"), exact);
  ASSERT_EQ(study("processes", " --processes 2").status, 0);
  EXPECT_EQ(exact_part_of(temp.path() / "processes" / "study.json"), exact);
}

TEST(StudyTest, RanksThatCannotShareTheStepAreRefusedBeforeAnythingRuns) {
  const TempFolder temp;
  const std::string study = "study --quick --output-dir " + temp.path().string();
  const ProgramRun heads = run_tracestep(words_of(study + " --parallel tp=3"));
  EXPECT_EQ(heads.status, 2);
  EXPECT_THAT(heads.err, HasSubstr("3 ranks cannot divide the model's heads of 4"));
  const ProgramRun launched =
      run_tracestep(words_of(study + " --parallel dp=2"),
                    {.environment = {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0",
                                     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"}});
  EXPECT_EQ(launched.status, 2);
  EXPECT_THAT(launched.err, HasSubstr("one process runs all of it, and 2 were started"));
  EXPECT_TRUE(fs::is_empty(temp.path()));
}

}  // namespace
}  // namespace tracestep
