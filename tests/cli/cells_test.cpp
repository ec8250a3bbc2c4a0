// Commands that measure cells: the same result one after the other, from a file (--resume), by new
// processes (--processes) and in rounds; and what such a file is gone on from and left alone. On
// the null device, which takes no time.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

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

std::ptrdiff_t lines_of(const TempFolder& folder) {
  return std::ranges::count(content_of(folder / "grid.jsonl"), '\n');
}

TEST(CellsTest, AnInterruptedGridContinuesWithItsFinishedRows) {
  const TempFolder folder;
  const Json first = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  ASSERT_TRUE(kept.starts_with(kHeader));
  ASSERT_EQ(lines_of(folder), 4);
  // Killed in the middle of its second row.
  folder.write("grid.jsonl", kept.substr(0, kept.size() - 20));
  const Json second = rows_of(bench(folder, "--context 8,16 --resume grid.jsonl"));
  ASSERT_EQ(second.size(), 4u);
  EXPECT_EQ(second.items()[0], first.items()[0]);
  EXPECT_EQ(lines_of(folder), 6);
  // Nothing is left to measure: the same rows, byte for byte.
  EXPECT_EQ(rows_of(bench(folder, "--context 8,16 --resume grid.jsonl")), second);
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
  bench(folder, "--seed 3 --context 8 --columns size,mode --resume=grid.jsonl --output out.json");
  EXPECT_EQ(lines_of(folder), 4);
  bench(folder, "--seed 4 --context 8 --resume grid.jsonl");
  EXPECT_EQ(lines_of(folder), 7);
}

TEST(CellsTest, WhatAKilledProcessLeftOfAFileIsReadAsFarAsItGoes) {
  const TempFolder folder;
  const Json first = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  for (const std::size_t length :
       {std::size_t{0}, kHeader.size() - 1, kHeader.size(), kHeader.size() + 30, kept.size() - 1}) {
    folder.write("grid.jsonl", kept.substr(0, length));
    const Json again = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
    EXPECT_EQ(again.size(), 2u) << length;
    EXPECT_EQ(again.items()[0] == first.items()[0], length == kept.size() - 1) << length;
    EXPECT_EQ(lines_of(folder), 4) << length;
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

// A command of each kind, with several cells and with one: its tables, and its files.
const std::string kCommands[] = {
    "comm --bytes 4KiB,8KiB --ranks 2 --calls 2 --warmup 0",
    "throughput --device null --context 8 --batch 1,2 --steps 2 --warmup 0" + kModel,
    "bench --device null --context 8,16 --steps 2 --warmup 0 --part-steps 1" + kModel,
    "bench --roof 0 --context 8 --steps 2 --warmup 0 --part-steps 1" + kModel,
    "attention --device null --width 16,32 --context 64,128,256 --steps 2 --warmup 0",
    "precision --part formats,steps --precision fp32,bf16 --context 8 --steps 2 --warmup 0" +
        kModel,
    "profile --context 8,16 --steps 1 --plain-steps 2 --warmup 0 --no-ceilings --trace t.json" +
        kModel,
    "compile --part steps,attention,saved,ladder --rungs norm,arena --device null --context 8 "
    "--mode step --width 16 --attention-context 64 --steps 2 --warmup 0" +
        kModel,
    "memory --device null --context 8,16" + kModel,
    "memory --device null --context 8 --tables holders,timeline,buffers --snapshot s.pickle "
    "--snapshot-json s.json" +
        kModel,
    "memory --device null --context 8 --memory-limit 50KiB" + kModel,
    "memory --predict --context 8 --tables holders --snapshot s.pickle" + kModel,
    "memory --predict --context 8 --memory-limit 50KiB" + kModel,
};

struct Outcome {
  ProgramRun run;
  Json result;
  std::set<std::string> files;  // that it left, which are not empty
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

// The rows by table, the first table under "".
std::map<std::string, Json> tables_of(const Json& result) {
  std::map<std::string, Json> out{{"", result.at("rows")}};
  if (const Json* tables = result.find("tables")) {
    for (const auto& [name, table] : tables->members()) out[name] = table.at("rows");
  }
  return out;
}

// True for a cell that says nothing of the time or the machine: two runs agree in it, it is no list
// of samples, and no judgement of them.
bool is_steady(const std::string& column, const Json& value, const Json& again) {
  const bool is_of_machine = column.starts_with("host_") || column == "others_cores" ||
                             column == "verdict" || column == "reading" || column == "doubts";
  const bool is_fraction = value.is_number() && !value.is_int();
  return !is_of_machine && !is_fraction && !value.is_array() && !value.is_null() && value == again;
}

// Holds a result against two of the plain command.
void expect_same(const Json& plain, const Json& again, const Json& other, const std::string& how) {
  const auto expected = tables_of(plain), twin = tables_of(again), actual = tables_of(other);
  for (const auto& [name, rows] : actual) {
    EXPECT_TRUE(expected.contains(name) || name == "beside") << how << ": a table " << name;
  }
  for (const auto& [name, rows] : expected) {
    ASSERT_TRUE(actual.contains(name)) << how << ": no table " << name;
    const Json& others = actual.at(name);
    ASSERT_EQ(others.size(), rows.size()) << how << ": rows of " << name;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const auto& [column, value] : rows.items()[i].members()) {
        const Json* now = others.items()[i].find(column);
        const Json* before = twin.at(name).items().at(i).find(column);
        ASSERT_NE(now, nullptr) << how << ": no column " << column << " in " << name;
        if (before == nullptr || !is_steady(column, value, *before)) continue;
        EXPECT_EQ(*now, value) << how << ": " << name << "." << column << " of row " << i;
      }
    }
  }
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
      expect_same(plain.result, again.result, other.result, command + more);
    }
  }
}

TEST(CellsTest, EveryCommandWithRoundsHasTheSameResultAndGoesOnInTheMiddle) {
  for (const std::string& command : kCommands) {
    if (command.starts_with("comm") || command.starts_with("memory")) continue;
    const TempFolder folder;
    const Outcome plain = outcome_of(folder, command), again = outcome_of(folder, command);
    const Outcome rounds = outcome_of(folder, command + " --rounds 3 --resume rows.jsonl");
    expect_same(plain.result, again.result, rounds.result, command + " --rounds 3");
    // Ended in the middle of a visit: the samples of those before it are the same.
    const std::string kept = content_of(folder / "rows.jsonl");
    folder.write("rows.jsonl", kept.substr(0, kept.size() / 2));
    const Outcome more = outcome_of(folder, command + " --rounds 3 --resume rows.jsonl");
    EXPECT_TRUE(contains(more.run.err, "rows are there")) << command << more.run.err;
    expect_same(plain.result, again.result, more.result, command + " --rounds 3, resumed");
    EXPECT_EQ(outcome_of(folder, command + " --rounds 3 --resume rows.jsonl").result.at("rows"),
              more.result.at("rows"))
        << command;
    expect_same(plain.result, again.result,
                outcome_of(folder, command + " --rounds 3 --processes 2").result,
                command + " --rounds 3 --processes 2");
  }
}

TEST(CellsTest, AFileHasARowOfAboutAKilobyteForACell) {
  const TempFolder folder;
  bench(folder, "--context 8,16,32 --steps 10 --warmup 5 --resume grid.jsonl");
  const std::string kept = content_of(folder / "grid.jsonl");
  EXPECT_EQ(lines_of(folder), 2 + 6);
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
  EXPECT_EQ(result.at("tables").at("beside").at("rows").size(), 2u);
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
  EXPECT_EQ(lines_of(folder), 8);
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
