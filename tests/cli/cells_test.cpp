// Commands that measure cells: the same result one after the other, from a file (--resume), by new
// processes (--processes) and in rounds; and what such a file is gone on from and left alone. On
// the null device, which takes no time.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

const char* const kGrid =
    "bench --device null --warmup 0 --steps 2 --mode inference,step --d-model 32 --d-ff 64 "
    "--layers 2 --heads 2 --vocab 50 --format json";
const std::string kHeader = R"({"schema":"tracestep.rows/1"})"
                            "\n";

ProgramRun bench(const TempFolder& folder, const std::string& more) {
  return run_tracestep(words_of(kGrid + (" " + more)), {.folder = folder.path()});
}

Json rows_of(const ProgramRun& run) {
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, "bench").at("rows");
}

// Begins the row of a cell; what belongs to a cell besides has rows of other stages.
const std::string kCell = R"({"key":{"stage":"step",)";

std::size_t cells_in(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(kCell); at != std::string::npos; at = text.find(kCell, at + 1)) {
    ++count;
  }
  return count;
}

std::size_t cells_in(const TempFolder& folder) {
  return cells_in(content_of(folder / "grid.jsonl"));
}

TEST(CellsTest, AnInterruptedGridContinuesWithItsFinishedRows) {
  const TempFolder folder;
  const Json first = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  ASSERT_TRUE(kept.starts_with(kHeader));
  ASSERT_EQ(cells_in(kept), 2u);
  // Killed in the middle of its second row.
  folder.write("grid.jsonl", kept.substr(0, kept.rfind(kCell) + 60));
  const Json second = rows_of(bench(folder, "--context 8,16 --resume grid.jsonl"));
  ASSERT_EQ(second.size(), 4u);
  EXPECT_EQ(second.items()[0], first.items()[0]);
  const std::string whole = content_of(folder / "grid.jsonl");
  EXPECT_EQ(cells_in(whole), 4u);
  // Nothing is left to measure: the same rows, byte for byte.
  EXPECT_EQ(rows_of(bench(folder, "--context 8,16 --resume grid.jsonl")), second);
  EXPECT_EQ(content_of(folder / "grid.jsonl"), whole);
}

TEST(CellsTest, AFileWithCellsSaysHowManyAreThere) {
  const TempFolder folder;
  EXPECT_FALSE(contains(bench(folder, "--context 8 --resume grid.jsonl").err, "there"));
  EXPECT_TRUE(contains(bench(folder, "--context 16 --resume grid.jsonl").err,
                       "[--resume] grid.jsonl: 0 of 2 rows are there\n"));
  EXPECT_TRUE(contains(bench(folder, "--context 8,16 --resume grid.jsonl").err,
                       "[--resume] grid.jsonl: 4 of 4 rows are there\n"));
}

TEST(CellsTest, ACellIsFoundHoweverItsOptionsAreOrderedAndShown) {
  const TempFolder folder;
  bench(folder, "--context 8 --seed 3 --resume grid.jsonl");
  const std::string kept = content_of(folder / "grid.jsonl");
  EXPECT_EQ(cells_in(kept), 2u);
  bench(folder, "--seed 3 --context 8 --columns size,mode --resume=grid.jsonl --output out.json");
  EXPECT_EQ(content_of(folder / "grid.jsonl"), kept);
  bench(folder, "--seed 4 --context 8 --resume grid.jsonl");
  EXPECT_EQ(cells_in(folder), 4u);
}

TEST(CellsTest, WhatAKilledProcessLeftOfAFileIsReadAsFarAsItGoes) {
  const TempFolder folder;
  const Json first = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  const std::size_t second = kept.rfind(kCell);
  for (const std::size_t length : {std::size_t{0}, kHeader.size() - 1, kHeader.size(),
                                   kHeader.size() + 30, second + 60, kept.size() - 1}) {
    folder.write("grid.jsonl", kept.substr(0, length));
    const Json again = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
    EXPECT_EQ(again.size(), 2u) << length;
    EXPECT_EQ(again.items()[0] == first.items()[0], length > second) << length;
    EXPECT_EQ(cells_in(folder), 2u) << length;
  }
}

TEST(CellsTest, AFileOfSomethingElseIsRefusedAndStaysAsItIs) {
  const TempFolder folder;
  rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  for (const std::string& text :
       {std::string(R"({"name":"x"})"), std::string("{"), std::string("notes\n"),
        std::string("\n\n"), std::string("[1, 2]"), kHeader.substr(0, 20), kHeader + "notes\n",
        kHeader + "notes", kept + "notes", kept + "{}\n", kept + R"({"key":{}})" + "\n",
        kHeader + R"({"key":{},"rows":1})" + "\n" + kept.substr(kHeader.size()),
        std::string(R"({"schema":"other/1","rows":[]})"),
        std::string(R"({"schema":"tracestep.bench/1","rows":[]})")}) {
    folder.write("grid.jsonl", text);
    const ProgramRun run = bench(folder, "--context 8 --resume grid.jsonl");
    EXPECT_EQ(run.status, 3) << text << run.err;
    EXPECT_TRUE(contains(run.err, "[grid.jsonl] ")) << text << run.err;
    EXPECT_EQ(content_of(folder / "grid.jsonl"), text);
  }
  const ProgramRun run = bench(folder, "--resume .");
  EXPECT_EQ(run.status, 3) << run.err;
}

// --- every command -------------------------------------------------------------------------------

const std::string kModel = " --d-model 16 --d-ff 32 --layers 1 --heads 2 --vocab 32 --threads 1";

// A command of each kind, with several cells and with one: its tables, and its files. What would
// fit is searched for without a backward pass, which takes a tenth of the time.
const std::string kCommands[] = {
    "comm --bytes 4KiB,8KiB --ranks 2 --calls 2 --warmup 0",
    "throughput --device null --context 8 --batch 1,2 --steps 2 --warmup 0" + kModel,
    "bench --device null --context 8,16 --steps 2 --warmup 0 --part-steps 1" + kModel,
    "bench --roof 0 --context 8 --steps 2 --warmup 0 --part-steps 1" + kModel,
    "bench --op gelu --shape 8x8,8x16 --cache warm --roof 0 --threads 1 --steps 2 --warmup 0",
    "attention --device null --width 16 --context 64,128,256 --steps 2 --warmup 0",
    "precision --part formats,steps --precision fp32,bf16 --context 8 --steps 2 --warmup 0" +
        kModel,
    "profile --mode step --context 8,16 --steps 1 --plain-steps 2 --warmup 0 --no-ceilings "
    "--trace t.json" +
        kModel,
    "compile --part steps,attention,saved,ladder --rungs norm,arena --device null --context 8 "
    "--mode step --width 16 --attention-context 64 --steps 2 --warmup 0" +
        kModel,
    "memory --device null --context 8,16" + kModel,
    "memory --device null --context 8 --tables holders,timeline,buffers --snapshot s.pickle "
    "--snapshot-json s.json" +
        kModel,
    "memory --device null --mode forward --context 8 --memory-limit 50KiB" + kModel,
    "memory --context 8 --tables ledger" + kModel,
    "memory --predict --context 8 --tables holders --snapshot s.pickle" + kModel,
    "memory --predict --mode forward --context 8 --memory-limit 50KiB" + kModel,
};

struct Outcome {
  ProgramRun run;
  Json result = {};
  std::set<std::string> files = {};  // that it left, which are not empty
};

Outcome outcome_of(const TempFolder& folder, const std::string& words) {
  std::vector<std::filesystem::path> old;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().filename() != "rows.jsonl") old.push_back(file.path());
  }
  for (const auto& file : old) std::filesystem::remove(file);
  Outcome out{.run = run_tracestep(words_of(words + " --format json"), {.folder = folder.path()})};
  EXPECT_TRUE(out.run.status == 0 || out.run.status == 4) << words << out.run.err;
  out.result = Json::parse(out.run.out, words);
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = file.path().filename().string();
    if (name != "rows.jsonl" && file.file_size() > 0) out.files.insert(name);
  }
  return out;
}

// Columns and rows by table, the first table under "".
std::map<std::string, Json> tables_of(const Json& result) {
  std::map<std::string, Json> out{
      {"", Json::Object{{"columns", result.at("columns")}, {"rows", result.at("rows")}}}};
  if (const Json* tables = result.find("tables")) {
    for (const auto& [name, table] : tables->members()) out[name] = table;
  }
  return out;
}

// True for a column that depends on the time, the machine or the process, or judges what does.
bool is_of_run(const std::string& name, const Json& column) {
  static const std::set<std::string> names{"others_cores", "untracked_bytes", "outside_bytes",
                                           "major_faults", "verdict",         "reading",
                                           "doubts"};
  if (names.contains(name) || name.ends_with(" (ns)")) return true;
  if (name.starts_with("host_before") || name.starts_with("host_after")) return true;
  if (name.starts_with("facts_") || name == "steps") return true;  // with rounds there are more
  const std::string kind = column.at("kind").as_string();
  const Json* role = column.find("role");
  const bool is_exact = role != nullptr && *role == Json("exact");
  return kind == "reals" || column.find("timing") != nullptr || (kind == "real" && !is_exact);
}

// The name without the cell whose table it is.
std::string base_of(const std::string& name) {
  return name.substr(0, name.find('@'));
}

// The rows' values in these columns, a line for each; of tables with the longest times first in the
// order of the lines.
std::vector<std::string> lines_of(const std::string& name, const Json& table,
                                  const std::vector<std::string>& columns) {
  static const std::set<std::string> by_time{"kernels", "kinds", "matrix", "ledger"};
  std::vector<std::string> out;
  for (const Json& row : table.at("rows").items()) {
    std::string line;
    for (const std::string& column : columns) {
      const Json* value = row.find(column);
      line += column + " " + (value == nullptr ? "is missing" : value->dump()) + "; ";
    }
    out.push_back(std::move(line));
  }
  if (by_time.contains(base_of(name))) std::ranges::sort(out);
  return out;
}

// The columns in which two runs agree.
std::vector<std::string> steady_columns(const std::string& name, const Json& table,
                                        const Json& twin) {
  std::vector<std::string> out;
  if (base_of(name) == "top") return out;  // which rows it has goes by time
  for (const auto& [column, about] : table.at("columns").members()) {
    const bool agrees = lines_of(name, table, {column}) == lines_of(name, twin, {column});
    if (agrees && !is_of_run(column, about)) out.push_back(column);
  }
  return out;
}

// How the rows of a table differ from those of another run; empty: not at all.
std::string difference_of_rows(const std::string& name, const Json& table, const Json& twin,
                               const Json& other) {
  const std::size_t count = table.at("rows").size();
  if (other.at("rows").size() != count) {
    return fmt::format("{}: {} rows, not {}", name, other.at("rows").size(), count);
  }
  if (count == 0) return "";
  for (const auto& [column, about] : table.at("columns").members()) {
    if (other.at("columns").find(column) == nullptr) return name + ": no column " + column;
  }
  const std::vector<std::string> columns = steady_columns(name, table, twin);
  const auto expected = lines_of(name, table, columns), actual = lines_of(name, other, columns);
  for (std::size_t i = 0; i < count; ++i) {
    if (actual[i] == expected[i]) continue;
    return fmt::format("{}: row {} is\n{}\nnot\n{}", name, i, actual[i], expected[i]);
  }
  return "";
}

// How a result differs from two of the plain command; empty: not at all.
std::string difference(const Json& plain, const Json& again, const Json& other) {
  const auto expected = tables_of(plain), twins = tables_of(again), actual = tables_of(other);
  for (const auto& [name, table] : actual) {
    const bool is_first = table.at("rows") == actual.at("").at("rows");  // alone it has no name
    if (!expected.contains(name) && name != "beside" && !is_first) return "a table " + name;
  }
  for (const auto& [name, table] : expected) {
    if (!twins.contains(name) || !actual.contains(name)) return "no table " + name;
    std::string found = difference_of_rows(name, table, twins.at(name), actual.at(name));
    if (!found.empty()) return found;
  }
  return "";
}

TEST(CellsTest, ADifferenceBetweenResultsIsFound) {
  const TempFolder folder;
  const std::string profile = *std::ranges::find_if(
      kCommands, [](const std::string& command) { return command.starts_with("profile"); });
  const Json plain = outcome_of(folder, profile).result, again = outcome_of(folder, profile).result;
  EXPECT_EQ(difference(plain, again, again), "");
  const auto tables = tables_of(plain);
  const std::pair<std::string, std::string> steady[] = {{"passes", "launches"},
                                                        {"clocks", "label"},
                                                        {"launch_check", "ran"},
                                                        {"matrix@", "kernel"},
                                                        {"kernels@", "Name"}};
  for (const auto& [begin, column] : steady) {
    const auto found = tables.lower_bound(begin);
    ASSERT_TRUE(found != tables.end() && found->first.starts_with(begin)) << begin;
    const Json::Array rows = found->second.at("rows").items();
    const auto with_rows = [&, name = found->first](const Json::Array& changed) {
      Json out = plain;
      out["tables"][name]["rows"] = changed;
      return difference(plain, again, out);
    };
    EXPECT_EQ(with_rows(rows), "");
    EXPECT_NE(with_rows(Json::Array(rows.begin(), rows.end() - 1)), "") << begin;
    Json::Array twice = rows, other = rows;
    twice.back() = twice.front();
    EXPECT_NE(with_rows(twice), "") << begin;
    other.front()[column] = Json("another");
    EXPECT_NE(with_rows(other), "") << begin;
  }
  Json less = Json::object();
  for (const auto& [name, table] : plain.at("tables").members()) {
    if (name != "clocks") less[name] = table;
  }
  Json out = plain;
  out["tables"] = less;
  EXPECT_EQ(difference(plain, again, out), "no table clocks");
  EXPECT_EQ(difference(out, out, plain), "a table clocks");
}

TEST(CellsTest, EveryCommandHasTheSameResultFromAFileAndByProcesses) {
  for (const std::string& command : kCommands) {
    const TempFolder folder;
    const Outcome plain = outcome_of(folder, command), again = outcome_of(folder, command);
    for (const std::string more :
         {" --resume rows.jsonl", " --resume rows.jsonl", " --processes 2"}) {
      const Outcome other = outcome_of(folder, command + more);
      EXPECT_EQ(other.run.status, plain.run.status) << command << more << other.run.err;
      EXPECT_EQ(other.files, plain.files) << command << more;
      EXPECT_EQ(difference(plain.result, again.result, other.result), "") << command << more;
    }
  }
}

TEST(CellsTest, EveryCommandWithRoundsHasTheSameResultAndGoesOnInTheMiddle) {
  const std::string rounds = " --rounds 2", resumed = rounds + " --resume rows.jsonl";
  for (const std::string& command : kCommands) {
    if (command.starts_with("comm") || command.starts_with("memory")) continue;
    const TempFolder folder;
    const Outcome plain = outcome_of(folder, command), again = outcome_of(folder, command);
    const auto expect_as_plain = [&](const Outcome& other, const std::string& more) {
      EXPECT_EQ(difference(plain.result, again.result, other.result), "") << command << more;
    };
    expect_as_plain(outcome_of(folder, command + resumed), resumed);
    // Ended in the middle of a visit: the samples of those before it are the same.
    const std::string kept = content_of(folder / "rows.jsonl");
    folder.write("rows.jsonl", kept.substr(0, kept.size() * 2 / 3));
    const Outcome more = outcome_of(folder, command + resumed);
    EXPECT_TRUE(contains(more.run.err, "rows are there")) << command << more.run.err;
    expect_as_plain(more, resumed + ", gone on with");
    EXPECT_EQ(outcome_of(folder, command + resumed).result.at("rows"), more.result.at("rows"))
        << command;
    expect_as_plain(outcome_of(folder, command + rounds + " --processes 2"),
                    rounds + " --processes 2");
  }
}

// Runs the tasks of `--sbatch` one after the other, as their scripts do, and merges them.
Outcome outcome_of_jobs(const TempFolder& folder, const std::string& words) {
  const auto run = [&](const std::string& line) {
    return run_tracestep(words_of(line), {.folder = folder.path()});
  };
  const ProgramRun written = run(words + " --sbatch jobs");
  EXPECT_EQ(written.status, 0) << words << written.err;
  const Json tasks = Json::parse(content_of(folder / "jobs/tasks.json"), words).at("tasks");
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const std::string cells = tasks.items()[i].as_string(), file = fmt::format("jobs/cells/{}", i);
    std::vector<std::string> line = words_of(words + " --output " + file + ".json");
    if (cells.empty()) {
      line.insert(line.end(), {"--format", "json"});
    } else {
      line.insert(line.end(), {"--cell", cells});
    }
    const ProgramRun task = run_tracestep(line, {.folder = folder.path()});
    EXPECT_TRUE(task.status == 0 || task.status == 4) << words << task.err;
    folder.write(file + ".done", "");
  }
  Outcome out{.run = run("merge jobs --format json")};
  EXPECT_EQ(out.run.status, 0) << words << out.run.err;
  out.result = Json::parse(out.run.out, words);
  return out;
}

TEST(CellsTest, EveryCommandHasTheSameResultByJobs) {
  for (const std::string& command : kCommands) {
    const TempFolder plain, jobs;
    const Json once = outcome_of(plain, command).result, again = outcome_of(plain, command).result;
    EXPECT_EQ(difference(once, again, outcome_of_jobs(jobs, command).result), "") << command;
    if (command.starts_with("comm") || command.starts_with("memory")) continue;
    const TempFolder rounds;
    EXPECT_EQ(difference(once, again, outcome_of_jobs(rounds, command + " --rounds 2").result), "")
        << command;
  }
}

TEST(CellsTest, NoCommandIsDrivenByTheTextOfItsOptions) {
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(testing::source_folder() / "src/cli")) {
    if (!file.is_regular_file()) continue;
    const std::string text = content_of(file.path());
    for (const char* name : {"in_parts", "CapturedResult", "divide("}) {
      EXPECT_FALSE(contains(text, name)) << file.path() << " has " << name;
    }
  }
}

TEST(CellsTest, AFileHasARowOfAboutAKilobyteForACell) {
  const TempFolder folder;
  std::string grid = kGrid;
  const std::string few = "--warmup 0 --steps 2";
  grid.replace(grid.find(few), few.size(), "--warmup 5 --steps 10");
  const ProgramRun run = run_tracestep(words_of(grid + " --context 8,16,32 --resume grid.jsonl"),
                                       {.folder = folder.path()});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string kept = content_of(folder / "grid.jsonl");
  EXPECT_EQ(cells_in(kept), 6u);
  EXPECT_LT(kept.size() / 6, std::size_t{2048});
}

TEST(CellsTest, WhatAGridRefusesItRefusesWithAFile) {
  const TempFolder folder;
  for (const std::string more : {"", " --resume rows.jsonl", " --processes 2"}) {
    const ProgramRun run =
        run_tracestep(words_of("memory --predict --context 8,16 --tables holders" + kModel + more),
                      {.folder = folder.path()});
    EXPECT_EQ(run.status, 2) << more;
    EXPECT_TRUE(contains(run.err, "[--tables] ")) << more << run.err;
  }
}

TEST(CellsTest, RoundsInProcessesAreVisitsThatAreCompared) {
  const TempFolder folder;
  std::string grid = kGrid;  // on a device that takes time
  grid.replace(grid.find("--device null"), 13, "--threads 1 --roof 0");
  const ProgramRun run = run_tracestep(words_of(grid + " --context 8 --rounds 3 --processes 3"),
                                       {.folder = folder.path()});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json result = Json::parse(run.out, "bench");
  for (const Json& row : result.at("rows").items()) {
    EXPECT_EQ(row.at("process_samples").size(), 9u);
    EXPECT_EQ(row.at("samples_ms").size(), 18u);
  }
  // The second cell beside the first.
  const Json beside = result.at("tables").at("beside").at("rows");
  ASSERT_EQ(beside.size(), 1u);
  EXPECT_EQ(beside.items()[0].at("rounds"), Json(9));
}

TEST(CellsTest, ProcessesTakeTurnsOverTheCellsAndAreKeptOneByOne) {
  const TempFolder folder;
  std::string grid = kGrid;  // on a device that takes time
  grid.replace(grid.find("--device null"), 13, "--threads 1 --roof 0");
  const auto timed = [&](const std::string& more) {
    return run_tracestep(words_of(grid + " " + more), {.folder = folder.path()});
  };
  const Json rows = rows_of(timed("--context 8 --processes 3 --resume grid.jsonl"));
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows.items()) {
    EXPECT_EQ(row.at("process_samples"), Json(Json::Array{2, 2, 2}));
    EXPECT_EQ(row.at("samples_ms").size(), 6u);
  }
  EXPECT_EQ(cells_in(folder), 6u);
  const ProgramRun more = timed("--context 8 --processes 4 --resume grid.jsonl");
  EXPECT_TRUE(contains(more.err, "6 of 8 rows are there"));
  EXPECT_EQ(rows_of(more).items()[0].at("process_samples").size(), 4u);
  const ProgramRun attention =
      run_tracestep(words_of("attention --width 16 --context 16 --steps 3 --processes 2 "
                             "--format json"));
  ASSERT_EQ(attention.status, 0) << attention.err;
  const Json row = Json::parse(attention.out, "attention").at("rows").items()[0];
  EXPECT_EQ(row.at("forward_process_samples"), Json(Json::Array{3, 3}));
  EXPECT_EQ(row.at("forward_samples_ms").size(), 6u);
}

TEST(CellsTest, WhatIsOfAllCellsIsRefused) {
  const TempFolder folder;
  for (const char* more : {"--warmup-study 0,1", "--nsys-hint"}) {
    for (const char* parts : {" --resume grid.jsonl", " --processes 2"}) {
      const ProgramRun run = bench(folder, std::string("--context 8 ") + more + parts);
      EXPECT_EQ(run.status, 2) << more << run.err;
      EXPECT_TRUE(contains(run.err, "it is of all cells together")) << run.err;
    }
  }
  EXPECT_EQ(bench(folder, "--context 8 --resume grid.jsonl --output grid.jsonl").status, 2);
}

TEST(CellsTest, ACellThatDoesNotFitIsARowAmongOthersAndEndsARunOfOne) {
  const TempFolder folder;
  const std::string limit = " --memory-limit 100KiB --resume grid.jsonl";
  const ProgramRun all = bench(folder, "--context 8,16" + limit);
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_EQ(rows_of(all).items()[0].at("status"), Json("oom"));
  const ProgramRun one = run_tracestep(
      words_of("bench --device null --steps 1 --size tiny --context 8 --memory-limit 1MiB --resume "
               "one.jsonl"),
      {.folder = folder.path()});
  EXPECT_EQ(one.status, 4) << one.err;
  EXPECT_TRUE(contains(one.out, "oom"));
}

TEST(CellsTest, ALinkThatLeadsNowhereYetStaysWhenNothingCanBeWritten) {
  const TempFolder folder;
  std::filesystem::create_symlink("new.jsonl", folder / "link.jsonl");
  const ProgramRun run =
      run_tracestep(words_of(std::string(kGrid) + " --context 8 --resume link.jsonl"),
                    {.folder = folder.path(), .before_start = [] {
                       std::signal(SIGXFSZ, SIG_IGN);
                       const rlimit small{8, 8};
                       ::setrlimit(RLIMIT_FSIZE, &small);
                     }});
  EXPECT_EQ(run.status, 5) << run.err;
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.jsonl"));
}

// Runs a grid whose first cell takes no time and whose second takes minutes, and `meanwhile` once
// the first row is in the file; then ends it.
void while_measuring(const TempFolder& folder, const std::string& file,
                     const std::function<void()>& meanwhile) {
  const std::string before = content_of(folder / file);
  const auto has_row = [&] {
    const std::string now = content_of(folder / file);
    // Not half of it: a row of a thousand samples takes several writes.
    return now != before && now != kHeader && now.ends_with('\n');
  };
  run_tracestep(
      words_of("bench --device reference --batch 1 --context 2,512 --mode step --warmup 0 "
               "--steps 1000 --d-model 16 --d-ff 16 --layers 1 --heads 2 --vocab 20 "
               "--resume " +
               file),
      {.folder = folder.path(), .while_running = [&](pid_t child) {
         while (!has_row() && ::kill(child, 0) == 0) {
           std::this_thread::sleep_for(std::chrono::milliseconds(5));
         }
         meanwhile();
         ::kill(child, SIGKILL);
       }});
}

TEST(CellsTest, OneProcessAtATimeWritesIt) {
  const TempFolder folder;
  std::filesystem::create_symlink("grid.jsonl", folder / "link.jsonl");
  while_measuring(folder, "grid.jsonl", [&] {
    const std::string kept = content_of(folder / "grid.jsonl");
    for (const std::string name : {"grid.jsonl", "link.jsonl"}) {
      const ProgramRun second = bench(folder, "--context 8 --resume " + name);
      EXPECT_EQ(second.status, 5) << second.err;
      EXPECT_TRUE(contains(second.err, "another process writes " + name));
    }
    EXPECT_EQ(content_of(folder / "grid.jsonl"), kept);
  });
  // The process was killed, and nothing is locked any more.
  rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
}

}  // namespace
}  // namespace tracestep
