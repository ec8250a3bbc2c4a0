// explain and the replay of published tables, from files to what is printed.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/json.h"
#include "cli/run_binary.h"
#include "course/claims.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

Json rows_of(const std::string& arguments, const std::filesystem::path& folder = {}) {
  const ProgramRun run = run_tracestep(words_of(arguments + " --format json"), {.folder = folder});
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, arguments).at("rows");
}

TEST(ExplainCommandTest, WithoutATopicItListsThem) {
  EXPECT_GE(rows_of("explain").size(), 22u);
  const ProgramRun wrong = run_tracestep(words_of("explain rooflin"));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.err, "did you mean roofline?")) << wrong.err;
}

TEST(ExplainCommandTest, NumbersComeFromTheModelOrFromAResult) {
  const Json residual = rows_of("explain residual-stream --size 2.7B --context 256");
  EXPECT_EQ(residual.items()[0].at("value").as_double(), 4.0 * 4 * 256 * 2560);
  const TempFolder folder;
  ASSERT_EQ(run_tracestep(words_of("bench --size tiny --context 16 --batch 1 --mode inference "
                                   "--warmup 2 --steps 6 --format json --output run.json"),
                          {.folder = folder.path()})
                .status,
            0);
  const Json run = rows_of("explain warm-up --from run.json", folder.path());
  const Json file = Json::parse(content_of(folder.path() / "run.json"), "run.json");
  EXPECT_EQ(run.items()[0].at("value").as_double(),
            file.at("rows").items()[0].at("median_ms").as_double());
  EXPECT_EQ(run_tracestep(words_of("explain warm-up --from run.json --size xl"),
                          {.folder = folder.path()})
                .status,
            3);
}

TEST(ExplainCommandTest, RanksAreAskedForWhereTheyMatter) {
  const std::string limits = "explain parallel-limits --size small ";
  EXPECT_NE(rows_of(limits), rows_of(limits + "--ranks 64"));
  EXPECT_EQ(rows_of(limits), rows_of(limits + "--tflops 989 --link-gb-s 450"));
  EXPECT_EQ(rows_of(limits + "--published a100-80gb").items()[0].at("value").as_double(), 1040);
  const ProgramRun drawn = run_tracestep(words_of(limits + "--between-gb-s 50 --tables bounds"));
  EXPECT_TRUE(contains(drawn.out, "sharded × tensor")) << drawn.out << drawn.err;
  const ProgramRun other = run_tracestep(words_of("explain softmax --ranks 4"));
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(contains(other.err, "data-parallel and parallel-limits are")) << other.err;
}

TEST(ExplainCommandTest, AStepThatRanOutOfMemoryHasSizesAndNoTimes) {
  const TempFolder folder;
  const auto status = [&](const std::string& command) {
    return run_tracestep(words_of(command), {.folder = folder.path()}).status;
  };
  ASSERT_EQ(status("bench --size tiny --context 16 --batch 1 --mode inference --memory-limit 1MiB "
                   "--roof 0 --format json --output run.json"),
            4);
  EXPECT_EQ(status("explain oom --from run.json"), 0);
  EXPECT_EQ(status("explain warm-up --from run.json"), 3);
}

TEST(ExplainCommandTest, WithAFileAloneItSaysWhatTheFileHasNumbersFor) {
  const TempFolder folder;
  folder.write("bench.json",
               content_of(testing::source_folder() / "tests/fuzz/corpus/result/bench"));
  const ProgramRun run =
      run_tracestep(words_of("explain --from bench.json"), {.folder = folder.path()});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err,
            "tracestep: [explain] a topic is missing; bench.json has numbers for warm-up, "
            "synchronisation, std, launch-bound, profiler-overhead, roofline, fusion; the other "
            "topics take its sizes\n");
}

TEST(ExplainCommandTest, ATopicNamesItsClaims) {
  const ProgramRun run = run_tracestep({"explain", "residual-stream", "--size", "tiny"});
  EXPECT_TRUE(contains(run.out, "published claims that do not hold: X27, X28")) << run.out;
}

TEST(ExplainCommandTest, ClaimsAreFoundByTheirWords) {
  EXPECT_EQ(rows_of("explain --claims").size(), 55u);
  const Json one = rows_of("explain --claims X22");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one.items()[0].at("row").as_string(), "X22");
  EXPECT_TRUE(contains(one.items()[0].at("claimed").as_string(), "30.7"));
  const ProgramRun none = run_tracestep({"explain", "--claims", "no such words"});
  EXPECT_EQ(none.status, 2);
}

// The commands of claims, each once and with as few steps as it takes.
std::set<std::string> commands_of_claims() {
  // Search for what would fit models of billions of parameters: tools/soak/claims.py runs them.
  const std::set<std::string> slow = {
      "memory --predict --size xl-2026 --context 2048 --mode step --ops primitive "
      "--memory-limit 178GiB",
      "memory --predict --size 2.7B --context 128 --mode step --memory-limit 40GiB"};
  const std::map<std::string, std::string> few_steps = {
      {"bench", " --steps 1 --warmup 0 --roof 0 --threads 1"},
      {"profile", " --steps 1 --plain-steps 1 --warmup 0 --no-ceilings --threads 1"},
      {"attention", " --steps 1 --warmup 0 --threads 1"}};
  std::set<std::string> out;
  std::size_t left_out = 0;
  for (const Claim& claim : claims()) {
    left_out += slow.count(claim.command);
    if (slow.contains(claim.command)) continue;
    const bool is_of_first_steps = claim.command.find("--warmup-study") != std::string::npos;
    if (is_of_first_steps) {
      out.insert(claim.command + " --roof 0 --threads 1");
      continue;
    }
    const auto few = few_steps.find(words_of(claim.command)[0]);
    out.insert(claim.command + (few == few_steps.end() ? "" : few->second));
  }
  EXPECT_EQ(left_out, slow.size());
  return out;
}

TEST(ExplainCommandTest, TheCommandOfEveryClaimRuns) {
  const TempFolder folder;
  const std::set<std::string> commands = commands_of_claims();
  EXPECT_GT(commands.size(), 40u);
  for (const std::string& command : commands) {
    const ProgramRun run = run_tracestep(words_of(command), {.folder = folder.path()});
    EXPECT_EQ(run.status, 0) << command << "\n" << run.err;
    EXPECT_FALSE(run.out.empty()) << command;
  }
}

TEST(PublishedCommandTest, ACommittedResultIsHeldAgainstPublishedTables) {
  const std::string csv =
      (testing::source_folder() / "bench" / "results" / "cuda-h200-grid.csv").string();
  const ProgramRun run = run_tracestep({"compare", csv, "--published", "--format", "json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json out = Json::parse(run.out, "replay");
  EXPECT_EQ(out.at("schema").as_string(), "tracestep.published/1");
  std::int64_t verdicts = 0;
  for (const Json& row : out.at("tables").at("published").at("rows").items()) {
    for (const char* column :
         {"agree", "predicted", "statuses_agree", "explainable", "suspicious", "not_compared"}) {
      verdicts += row.at(column).as_int();
    }
  }
  EXPECT_EQ(verdicts, std::ssize(out.at("tables").at("published_times").at("rows").items()));
  EXPECT_EQ(run_tracestep({"compare", csv}).status, 2);
}

}  // namespace
}  // namespace tracestep
