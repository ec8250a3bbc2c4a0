// Commands cell by cell: --resume, what it goes on from and what it leaves alone, and --processes.
// On the null device, which takes no time.
#include <algorithm>
#include <chrono>
#include <csignal>
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
const std::string kHeader = R"({"schema":"tracestep.parts/1"})"
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

TEST(PartsTest, AnInterruptedGridContinuesWithItsFinishedRows) {
  const TempFolder folder;
  const Json first = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  ASSERT_TRUE(kept.starts_with(kHeader));
  ASSERT_EQ(lines_of(folder), 3);
  // Killed in the middle of its second row.
  folder.write("grid.jsonl", kept.substr(0, kept.size() - 20));
  const Json second = rows_of(bench(folder, "--context 8,16 --resume grid.jsonl"));
  ASSERT_EQ(second.size(), 4u);
  EXPECT_EQ(second.items()[0], first.items()[0]);
  EXPECT_EQ(lines_of(folder), 5);
  // Nothing is left to measure: the same rows, byte for byte.
  EXPECT_EQ(rows_of(bench(folder, "--context 8,16 --resume grid.jsonl")), second);
}

TEST(PartsTest, AFileWithCellsSaysHowManyAreThere) {
  const TempFolder folder;
  EXPECT_FALSE(contains(bench(folder, "--context 8 --resume grid.jsonl").err, "there"));
  EXPECT_TRUE(contains(bench(folder, "--context 16 --resume grid.jsonl").err,
                       "[--resume] grid.jsonl: 0 of 2 parts are there\n"));
  EXPECT_TRUE(contains(bench(folder, "--context 8,16 --resume grid.jsonl").err,
                       "[--resume] grid.jsonl: 4 of 4 parts are there\n"));
}

TEST(PartsTest, ACellIsFoundHoweverItsOptionsAreOrderedAndShown) {
  const TempFolder folder;
  bench(folder, "--context 8 --seed 3 --resume grid.jsonl");
  bench(folder, "--seed 3 --context 8 --columns size,mode --resume=grid.jsonl --output out.json");
  EXPECT_EQ(lines_of(folder), 3);
  bench(folder, "--seed 4 --context 8 --resume grid.jsonl");
  EXPECT_EQ(lines_of(folder), 5);
}

TEST(PartsTest, WhatAKilledProcessLeftOfAFileIsReadAsFarAsItGoes) {
  const TempFolder folder;
  const Json first = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  for (const std::size_t length :
       {std::size_t{0}, kHeader.size() - 1, kHeader.size(), kHeader.size() + 30, kept.size() - 1}) {
    folder.write("grid.jsonl", kept.substr(0, length));
    const Json again = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
    EXPECT_EQ(again.size(), 2u) << length;
    EXPECT_EQ(again.items()[0] == first.items()[0], length == kept.size() - 1) << length;
    EXPECT_EQ(lines_of(folder), 3) << length;
  }
}

TEST(PartsTest, AFileOfSomethingElseIsRefusedAndStaysAsItIs) {
  const TempFolder folder;
  rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  for (const std::string& text :
       {std::string(R"({"name":"x"})"), std::string("{"), std::string("notes\n"),
        std::string("\n\n"), std::string("[1, 2]"), kHeader.substr(0, 20), kHeader + "notes\n",
        kHeader + "notes", kept + "notes", kept + "{}\n", kept + R"({"part":{}})" + "\n",
        kHeader + R"({"part":{},"result":{"rows":1}})" + "\n" + kept.substr(kHeader.size()),
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

TEST(PartsTest, EveryCommandWithCellsGoesOnWithWhatIsMissing) {
  const TempFolder folder;
  for (const std::string command :
       {"memory --predict --size tiny --context 16,32 --recompute none,blocks",
        "attention --device null --width 16,32 --context 64,128,256",
        "comm --bytes 4KiB,8KiB --ranks 2 --calls 1 --warmup 0",
        "profile --size tiny --context 16,32 --steps 1 --plain-steps 1 --warmup 0 --no-ceilings",
        "compile --part steps --device null --size tiny --context 16,32",
        "precision --part formats --size tiny --context 16,32"}) {
    std::filesystem::remove(folder / "grid.jsonl");
    const auto run = [&](const std::string& more) {
      return run_tracestep(words_of(command + more), {.folder = folder.path()});
    };
    const ProgramRun first = run(" --format json --resume grid.jsonl");
    ASSERT_EQ(first.status, 0) << command << first.err;
    const std::string kept = content_of(folder / "grid.jsonl");
    const auto parts = std::ranges::count(kept, '\n') - 1;
    EXPECT_GE(parts, 2) << command;
    // The last part was never begun.
    folder.write("grid.jsonl", kept.substr(0, kept.rfind('\n', kept.size() - 2) + 1));
    const ProgramRun again = run(" --format json --resume grid.jsonl");
    EXPECT_TRUE(contains(again.err, std::to_string(parts - 1) + " of ")) << again.err;
    const Json rows = Json::parse(first.out, command).at("rows");
    const Json more = Json::parse(again.out, command).at("rows");
    ASSERT_EQ(more.size(), rows.size()) << command;
    EXPECT_EQ(more.items()[0], rows.items()[0]) << command;
    // To people the same columns as without a file.
    const ProgramRun text = run(" --all --resume grid.jsonl"), plain = run(" --all");
    const auto heading = [](const std::string& all) {
      const std::size_t rule = all.find("\n---"), begin = all.rfind('\n', rule - 1) + 1;
      return words_of(all.substr(begin, rule - begin));
    };
    EXPECT_EQ(heading(text.out), heading(plain.out)) << command;
  }
}

TEST(PartsTest, ProcessesTakeTurnsOverTheCellsAndAreKeptOneByOne) {
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
  EXPECT_EQ(lines_of(folder), 7);
  const ProgramRun more = timed("--context 8 --processes 4 --resume grid.jsonl");
  EXPECT_TRUE(contains(more.err, "6 of 8 parts are there"));
  EXPECT_EQ(rows_of(more).items()[0].at("process_samples").size(), 4u);
  const ProgramRun attention =
      run_tracestep(words_of("attention --width 16 --context 16 --steps 3 --processes 2 "
                             "--format json"));
  ASSERT_EQ(attention.status, 0) << attention.err;
  const Json row = Json::parse(attention.out, "attention").at("rows").items()[0];
  EXPECT_EQ(row.at("forward_process_samples"), Json(Json::Array{3, 3}));
  EXPECT_EQ(row.at("forward_samples_ms").size(), 6u);
}

TEST(PartsTest, WhatIsOfAllCellsIsRefused) {
  const TempFolder folder;
  for (const char* more :
       {"--rounds 3", "--rounds 3 --repeat 2", "--warmup-study 0,1", "--nsys-hint"}) {
    for (const char* parts : {" --resume grid.jsonl", " --processes 2"}) {
      const ProgramRun run = bench(folder, std::string("--context 8 ") + more + parts);
      EXPECT_EQ(run.status, 2) << more << run.err;
      EXPECT_TRUE(contains(run.err, "it is of all cells together")) << run.err;
    }
  }
  const ProgramRun trace = run_tracestep(
      words_of("profile --size tiny --context 16,32 --trace t.json --resume grid.jsonl"),
      {.folder = folder.path()});
  EXPECT_EQ(trace.status, 2);
  EXPECT_TRUE(contains(trace.err, "[--trace] ")) << trace.err;
  EXPECT_EQ(bench(folder, "--context 8 --resume grid.jsonl --output grid.jsonl").status, 2);
}

TEST(PartsTest, ACellThatDoesNotFitIsARowAmongOthersAndEndsARunOfOne) {
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

TEST(PartsTest, ALinkThatLeadsNowhereYetStaysWhenNothingCanBeWritten) {
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

TEST(PartsTest, OneProcessAtATimeWritesIt) {
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
