// bench --resume: what it goes on from, and what it leaves alone. On the null device, which takes
// no time.
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
const std::string kHeader = R"({"schema":"tracestep.bench.resume/1"})"
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

TEST(BenchResumeTest, AnInterruptedGridContinuesWithItsFinishedRows) {
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

TEST(BenchResumeTest, AFileWithRowsSaysHowManyAreAdded) {
  const TempFolder folder;
  EXPECT_FALSE(contains(bench(folder, "--context 8 --resume grid.jsonl").err, "there"));
  EXPECT_TRUE(contains(bench(folder, "--context 16 --resume grid.jsonl").err,
                       "[--resume] grid.jsonl: 2 rows there, 2 new\n"));
  EXPECT_TRUE(contains(bench(folder, "--context 8,16 --resume grid.jsonl").err,
                       "[--resume] grid.jsonl: 4 rows there, 0 new\n"));
}

TEST(BenchResumeTest, TheRowsOfAnEarlierVersionAreFound) {
  const TempFolder folder;
  const std::string kept = content_of(testing::source_folder() / "tests/cli/bench_1/resume.jsonl");
  folder.write("grid.jsonl", kept);
  const Json rows = rows_of(run_tracestep(
      words_of("bench --device null --threads 1 --warmup 0 --steps 2 --size tiny --vocab 50 "
               "--batch 1 --context 8 --mode step --precision fp32,bf16 --attention naive,flash "
               "--format json --resume grid.jsonl"),
      {.folder = folder.path()}));
  EXPECT_EQ(rows.size(), 4u);
  EXPECT_EQ(content_of(folder / "grid.jsonl"), kept) << "a row was measured again";
}

TEST(BenchResumeTest, FilesWithoutAHeaderAndWithoutTheLastNewlineAreRead) {
  const TempFolder folder;
  const Json first = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  const std::string rows = kept.substr(kHeader.size());
  const std::string one_row = rows.substr(0, rows.find('\n') + 1);
  for (const std::string& text :
       {rows, rows.substr(0, rows.size() - 1), kept.substr(0, kept.size() - 1),
        rows.substr(0, rows.size() - 20), one_row + R"({"siz)"}) {
    folder.write("grid.jsonl", text);
    const Json again = rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
    EXPECT_EQ(again.items()[0], first.items()[0]);
    EXPECT_EQ(lines_of(folder), text.starts_with(kHeader) ? 3 : 2);
  }
  for (const std::string& text : {std::string(), kHeader, kHeader.substr(0, kHeader.size() - 1)}) {
    folder.write("grid.jsonl", text);
    rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
    EXPECT_EQ(lines_of(folder), 3);
  }
}

TEST(BenchResumeTest, AFileOfSomethingElseIsRefusedAndStaysAsItIs) {
  const TempFolder folder;
  rows_of(bench(folder, "--context 8 --resume grid.jsonl"));
  const std::string kept = content_of(folder / "grid.jsonl");
  const std::string rows = kept.substr(kHeader.size());
  for (const std::string& text :
       {std::string(R"({"name":"x"})"),
        std::string(R"({"name":"x")"),
        std::string("{"),
        std::string("notes\n"),
        std::string("\n\n"),
        std::string("[1, 2]"),
        std::string("{\n  \"name\": \"x\"\n}\n"),
        std::string(R"({"cell":{}, "name":"x"})"),
        std::string(R"({"cell":{}, "name":"x"})") + "\n" + R"({"size":)",
        std::string(R"({"cell":1})") + "\n",
        kHeader.substr(0, 20),
        rows.substr(0, 20),
        kHeader + "notes\n",
        kHeader + "notes",
        rows + "notes",
        rows + R"({"name":"x"})",
        rows + R"({"name":"x"})" + "\n" + rows,
        std::string(R"({"schema":"other/1","rows":[]})"),
        std::string(R"({"schema":"tracestep.bench/1","rows":[]})"),
        std::string(
            R"({"schema":"tracestep.bench/1","environment":{},"rows":[{"cell":{},"a":1}]})"),
        std::string(R"({"schema":"tracestep.bench/1","environment":{},"rows":[],"mine":1})")}) {
    folder.write("grid.jsonl", text);
    const ProgramRun run = bench(folder, "--context 8 --resume grid.jsonl");
    EXPECT_EQ(run.status, 3) << text << run.err;
    EXPECT_TRUE(contains(run.err, "[grid.jsonl] ")) << text;
    EXPECT_EQ(content_of(folder / "grid.jsonl"), text);
  }
  const ProgramRun run = bench(folder, "--resume .");
  EXPECT_EQ(run.status, 3) << run.err;
}

TEST(BenchResumeTest, ARowOfOtherParametersIsMeasuredAgain) {
  const TempFolder folder;
  for (const char* more : {"", " --seed 2", " --memory-limit 1GiB"}) {
    bench(folder, std::string("--context 8 --resume grid.jsonl") + more);
  }
  EXPECT_EQ(lines_of(folder), 7);
}

TEST(BenchResumeTest, AResultInJsonCanBeResumedToo) {
  const TempFolder folder;
  bench(folder, "--context 8 --output grid.json");
  const Json before = Json::parse(content_of(folder / "grid.json"), "grid.json");
  const Json after = rows_of(bench(folder, "--context 8,16 --resume grid.json"));
  EXPECT_EQ(after.items()[0], before.at("rows").items()[0]);
  const Json file = Json::parse(content_of(folder / "grid.json"), "grid.json");
  EXPECT_EQ(file.at("rows"), after);
}

TEST(BenchResumeTest, AResultOfAnotherMachineIsWarnedOf) {
  const TempFolder folder;
  bench(folder, "--context 8 --output grid.json");
  const ProgramRun same = bench(folder, "--context 8 --resume grid.json");
  EXPECT_EQ(same.err.find("another machine"), std::string::npos) << same.err;
  Json document = Json::parse(content_of(folder / "grid.json"), "grid.json");
  document["environment"]["cpu"] = "an abacus";
  folder.write("grid.json", document.dump());
  const ProgramRun other = bench(folder, "--context 8 --resume grid.json");
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_TRUE(contains(other.err, "cpu was \"an abacus\" and is ")) << other.err;
}

TEST(BenchResumeTest, ALinkThatLeadsNowhereYetStaysWhenNothingCanBeWritten) {
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

TEST(BenchResumeTest, OneProcessAtATimeWritesIt) {
  const TempFolder folder;
  bench(folder, "--context 8 --output grid.json");
  std::filesystem::create_symlink("grid.jsonl", folder / "link.jsonl");
  for (const std::string file : {"grid.jsonl", "grid.json"}) {
    while_measuring(folder, file, [&] {
      const std::string kept = content_of(folder / file);
      for (const std::string& name : {file, std::string("link.jsonl")}) {
        if (name != file && file != "grid.jsonl") continue;
        const ProgramRun second = bench(folder, "--context 8 --resume " + name);
        EXPECT_EQ(second.status, 5) << second.err;
        EXPECT_TRUE(contains(second.err, "another process writes " + name));
      }
      EXPECT_EQ(content_of(folder / file), kept);
    });
    // It was killed, and nothing is locked any more.
    rows_of(bench(folder, "--context 8 --resume " + file));
  }
}

}  // namespace
}  // namespace tracestep
