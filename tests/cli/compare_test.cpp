// compare: two results of bench, from files to exit status.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

// One row of `bench` with ten processes around `ms`.
std::string result(double ms) {
  Json samples = Json::array(), counts = Json::array();
  for (int i = 0; i < 10; ++i) {
    samples.push_back(ms * (1 + 0.001 * i));
    counts.push_back(1);
  }
  Json row = Json::object();
  row["size"] = "tiny";
  row["mode"] = "step";
  row["status"] = "ok";
  row["samples_ms"] = samples;
  row["process_samples"] = counts;
  Json rows = Json::array();
  rows.push_back(row);
  Json out = Json::object();
  out["schema"] = "tracestep.bench/1";
  out["environment"] = Json::object();
  out["columns"] = Json::Object{{"samples_ms", Json::object()}};
  out["rows"] = rows;
  return out.dump();
}

TEST(CompareCommandTest, ARegressionEndsWithStatusOne) {
  const TempFolder folder;
  folder.write("a.json", result(100));
  folder.write("b.json", result(110));
  const RunHow here{.folder = folder.path()};
  EXPECT_EQ(run_tracestep(words_of("compare a.json b.json"), here).status, 0);
  const ProgramRun itself = run_tracestep(words_of("compare a.json ./a.json"), here);
  EXPECT_TRUE(contains(itself.err, "A and B are the same file")) << itself.err;
  const ProgramRun gate =
      run_tracestep(words_of("compare a.json b.json --fail-on-regression 5 --format json"), here);
  EXPECT_EQ(gate.status, 1);
  EXPECT_TRUE(contains(gate.err, "regression: tiny step: +10.0 %")) << gate.err;
  const Json out = Json::parse(gate.out, "compare");
  EXPECT_EQ(out.at("schema").as_string(), "tracestep.compare/1");
  const Json& row = out.at("tables").at("compare").at("rows").items().at(0);
  EXPECT_EQ(row.at("verdict").as_string(), "slower");
  EXPECT_EQ(run_tracestep(words_of("compare --fail-on-regression 20 a.json b.json"), here).status,
            0);
}

TEST(CompareCommandTest, AGateThatCannotBeJudgedEndsWithStatusSevenAndSaysWhy) {
  const TempFolder folder;
  Json document = Json::parse(result(100), "a");
  folder.write("a.json", document.dump());
  document["rows"] = Json::array();
  folder.write("empty.json", document.dump());
  // Three times slower, and the median is not that of the samples.
  document = Json::parse(result(300), "b");
  Json row = document.at("rows").items()[0];
  row["median_ms"] = 1.0;
  document["rows"] = Json::Array{row};
  folder.write("invalid.json", document.dump());
  row["samples_ms"] = Json::array();
  document["rows"] = Json::Array{row};
  folder.write("nothing.json", document.dump());
  const RunHow here{.folder = folder.path()};
  const std::pair<const char*, const char*> cases[] = {
      {"empty.json", "cannot be judged: tiny step: only in A"},
      {"invalid.json", "cannot be judged: tiny step: B invalid: unit_mix_up"},
      {"nothing.json", "cannot be judged: tiny step: no samples in B"}};
  for (const auto& [file, why] : cases) {
    const std::string call = std::string("compare a.json ") + file;
    EXPECT_EQ(run_tracestep(words_of(call), here).status, 0) << file;
    const ProgramRun gate = run_tracestep(words_of(call + " --fail-on-regression 5"), here);
    EXPECT_EQ(gate.status, 7) << file;
    EXPECT_TRUE(contains(gate.err, why));
  }
  const ProgramRun published =
      run_tracestep(words_of("compare a.json --published --fail-on-regression 5"), here);
  EXPECT_EQ(published.status, 2) << published.err;
}

TEST(CompareCommandTest, FilesThatAreNoResultsAreNamed) {
  const TempFolder folder;
  folder.write("a.json", result(100));
  folder.write("b.json", "{\"rows\": []}");
  folder.write("c.json", "{\"schema\": \"tracestep.doctor/1\"}");
  const std::string bench = "{\"schema\": \"tracestep.bench/1\"";
  folder.write("d.json", bench + ", \"rows\": []}");
  folder.write("e.json", bench + ", \"environment\": {}, \"rows\": 1}");
  const RunHow here{.folder = folder.path()};
  for (const std::string file : {"d.json", "e.json"}) {
    for (const std::string& call : {"compare a.json " + file, "explain warm-up --from " + file}) {
      const ProgramRun run = run_tracestep(words_of(call), here);
      EXPECT_EQ(run.status, 3) << call;
      EXPECT_TRUE(contains(run.err, "[" + file + "] it is no whole JSON result")) << run.err;
    }
  }
  EXPECT_EQ(run_tracestep(words_of("compare a.json b.json"), here).status, 3);
  EXPECT_EQ(run_tracestep(words_of("compare a.json c.json"), here).status, 3);
  EXPECT_EQ(run_tracestep(words_of("compare a.json none.json"), here).status, 3);
  EXPECT_EQ(run_tracestep(words_of("compare a.json"), here).status, 2);
  EXPECT_EQ(run_tracestep(words_of("compare a.json a.json a.json"), here).status, 2);
  EXPECT_EQ(run_tracestep(words_of("compare"), here).status, 2);
}

// The rows of the table `compare`, each as "row: verdict"; empty where nothing is to be said of
// any.
std::string said(const ProgramRun& run) {
  const Json out = Json::parse(run.out, "compare");
  const Json* table = out.at("tables").find("compare");
  std::string words;
  for (const Json& row : table == nullptr ? Json::Array() : table->at("rows").items()) {
    words += row.at("row").as_string() + ": " + row.at("verdict").as_string() + "\n";
  }
  return words;
}

TEST(CompareCommandTest, AGridOverAnyFieldIsTheSameAsItself) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  const std::string memory = "memory --predict --size tiny --context 8 ",
                    compile =
                        "compile --device null --size tiny,small --context 8 --steps 1 "
                        "--width 16 --attention-context 64 --part ";
  for (const std::string& command :
       {memory + "--recompute none,blocks", memory + "--loss-chunks 1,2",
        memory + "--updates end,early --moments fp32,bf16", compile + "attention",
        compile + "steps --mode step --recompute none,blocks"}) {
    for (const std::string format : {"csv", "json"}) {
      const std::string call = command + " --format " + format + " --output a." + format;
      ASSERT_EQ(run_tracestep(words_of(call), here).status, 0) << call;
    }
    for (const char* files : {"a.json a.json", "a.csv a.csv", "a.csv a.json"}) {
      const ProgramRun run = run_tracestep(words_of(std::string("compare ") + files), here);
      EXPECT_EQ(run.status, 0) << command << ": " << run.err;
      std::string words = run.out;  // lines of a screen end where it does
      std::ranges::replace(words, '\n', ' ');
      EXPECT_TRUE(contains(words, "figures were compared exactly: all are the same")) << files;
      EXPECT_FALSE(contains(run.out, "\n0 figures")) << files;
      EXPECT_FALSE(contains(run.out, "only in")) << run.out;
    }
  }
}

TEST(CompareCommandTest, RowsThatDifferInAnUnusualFieldAreNamedByIt) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  for (const std::string blocks : {"none,blocks", "none"}) {
    const std::string call = "memory --predict --size tiny --context 8 --recompute " + blocks;
    ASSERT_EQ(run_tracestep(words_of(call + " --format json --output " + blocks), here).status, 0);
  }
  const ProgramRun run = run_tracestep(words_of("compare none,blocks none --format json"), here);
  EXPECT_EQ(said(run), "tiny context 8 batch 4 step fp32 fused recompute blocks: only in A\n");
}

TEST(CompareCommandTest, ProfilesOfDifferentBatchesAreComparedByThemButNotByAGate) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  for (const std::string batch : {"2", "4"}) {
    const std::string call = "profile --size tiny --context 8 --mode forward --threads 1 --format ";
    ASSERT_EQ(run_tracestep(
                  words_of(call + "json --batch " + batch + " --output p" + batch + ".json"), here)
                  .status,
              0);
  }
  const ProgramRun said_so = run_tracestep(words_of("compare p2.json p4.json"), here);
  EXPECT_TRUE(contains(said_so.out, "A and B differ in batch 2 → 4.")) << said_so.out;
  const ProgramRun run =
      run_tracestep(words_of("compare p2.json p4.json --format json --fail-on-regression 1"), here);
  ASSERT_EQ(run.status, 7) << run.err;
  for (const std::string row : {"tiny context 8 forward fp32 fused all batch 2: only in A",
                                "tiny context 8 forward fp32 fused all batch 4: only in B"}) {
    EXPECT_TRUE(contains(said(run), row)) << said(run);
  }
  EXPECT_TRUE(contains(run.out, "no figures were compared exactly")) << run.out;
}

TEST(CompareCommandTest, CommandsAreRunInPairs) {
  const TempFolder folder;
  folder.write("a.json", result(100));
  folder.write("b.json", result(150));
  const RunHow here{.folder = folder.path()};
  // Each notes its turn.
  const std::string call =
      "compare --run 'echo A >> turns; cat a.json #' --run 'echo B >> turns; cat b.json #' "
      "--processes 9 --format json";
  const ProgramRun run = run_tracestep(words_of(call), here);
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string turns = content_of(folder / "turns");
  ASSERT_EQ(turns.size(), 36u) << turns;
  for (std::size_t pair = 0; pair < 9; ++pair) {
    const std::string both = turns.substr(4 * pair, 4);
    EXPECT_TRUE(both == "A\nB\n" || both == "B\nA\n") << turns;
  }
  const Json table = Json::parse(run.out, "compare").at("tables").at("compare");
  const Json row = table.at("rows").items()[0];
  EXPECT_EQ(row.at("verdict").as_string(), "slower");
  EXPECT_EQ(row.at("processes_a"), Json(90));
  EXPECT_EQ(row.at("count_b"), Json(90));
  EXPECT_NEAR(row.at("p").as_double(), 2.0 / 512, 1e-12);
  EXPECT_EQ(run_tracestep(words_of(call + " --pairs 9"), here).status, 2);
}

TEST(CompareCommandTest, CommandsThatDifferInOneKeyAreComparedByIt) {
  const std::string bench = testing::program_path().string() +
                            " bench --d-model 16 --d-ff 32 --layers 2 --heads 2 --vocab 64 "
                            "--context 8 --batch 2 --threads 1 --steps 2 --roof 0 --precision ";
  const ProgramRun run = run_tracestep(
      {"compare", "--run", bench + "fp32", "--run", bench + "bf16", "--processes", "2"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string answer = run.out.substr(0, run.out.find('\n'));
  EXPECT_TRUE(contains(answer, "B takes ")) << run.out;
  EXPECT_TRUE(contains(answer, "A and B differ in precision fp32 → bf16.")) << run.out;
  EXPECT_TRUE(contains(run.out, "fp32 → bf16")) << run.out;
  EXPECT_FALSE(contains(run.out, "only in")) << run.out;
}

TEST(CompareCommandTest, ACommandThatFailsIsNamed) {
  const TempFolder folder;
  folder.write("a.json", result(100));
  const RunHow here{.folder = folder.path()};
  const std::pair<const char*, int> cases[] = {
      {"compare --run 'cat a.json #' --run 'echo out of paper >&2; exit 9 #'", 1},
      {"compare --run 'cat a.json #' --run 'echo text #'", 3},
      {"compare --run 'cat a.json #'", 2},
      {"compare a.json --run 'cat a.json #' --run 'cat a.json #'", 2}};
  for (const auto& [call, status] : cases) {
    EXPECT_EQ(run_tracestep(words_of(call), here).status, status) << call;
  }
  EXPECT_TRUE(contains(run_tracestep(words_of(cases[0].first), here).err,
                       "ended with status 9: out of paper"));
  const std::string said = run_tracestep(words_of(cases[1].first), here).err;
  EXPECT_TRUE(contains(said, "`cat a.json #` prints a result, and `echo text #` prints none"));
  const ProgramRun silent = run_tracestep(words_of("compare --run false --run true"), here);
  EXPECT_EQ(silent.status, 1);
  EXPECT_TRUE(contains(silent.err, "`false` ended with status 1")) << silent.err;
  const std::string wrong = testing::program_path().string() + " bench --sise tiny";
  const ProgramRun ours = run_tracestep({"compare", "--run", wrong, "--run", wrong});
  EXPECT_TRUE(contains(ours.err, "bench --sise tiny --format json` ended with status 2"))
      << ours.err;
}

TEST(CompareCommandTest, CommandsThatPrintNoResultAreTimedAsAWhole) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  const ProgramRun run = run_tracestep(
      words_of("compare --run 'echo got >> said' --run 'sleep 0.03' --processes 9"), here);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "the time that each takes as a whole is compared")) << run.err;
  const std::string answer = run.out.substr(0, run.out.find("\n\n"));
  EXPECT_TRUE(contains(answer, "slower.")) << run.out;
  EXPECT_TRUE(contains(answer, "differ in command echo got >> said → sleep 0.03")) << run.out;
  std::string said;
  for (int i = 0; i < 9; ++i) said += "got\n";
  EXPECT_EQ(content_of(folder / "said"), said) << "no flags are added to commands of others";
}

// A command of ours without tables is timed like any other, and is not asked for a format.
TEST(CompareCommandTest, CommandsOfOursWithoutTablesAreTimedToo) {
  const std::string version = testing::program_path().string() + " version";
  const ProgramRun run =
      run_tracestep({"compare", "--run", version, "--run", version, "--processes", "9"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "B takes ")) << run.out;
}

TEST(CompareCommandTest, WhatIsNoResultOfOursIsCalledSo) {
  const TempFolder folder;
  folder.write("log.csv", "step,loss\n1,2.5\n");
  folder.write("log.txt", "step,loss\n1,2.5\n");
  folder.write("trace.json", R"({"traceEvents": []})");
  folder.write("other.json", R"({"rows": []})");
  const RunHow here{.folder = folder.path()};
  for (const std::string file : {"log.csv", "log.txt", "trace.json", "other.json"}) {
    for (const char* command : {"compare FILE FILE", "study --from FILE", "explain oom --from FILE",
                                "pivot FILE --across context"}) {
      std::string call = command;
      for (std::size_t at; (at = call.find("FILE")) != call.npos;) call.replace(at, 4, file);
      const ProgramRun run = run_tracestep(words_of(call), here);
      EXPECT_EQ(run.status, 3) << call << run.err;
      const bool is_recording = file == "trace.json" && call.starts_with("compare");
      EXPECT_TRUE(contains(run.err, is_recording ? "it has no ops, kernels or ranges"
                                                 : "it is no result of tracestep: "))
          << call << ": " << run.err;
    }
  }
}

TEST(CompareCommandTest, MoreBytesAreARegressionAndTheirBuffersAreNamed) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  const std::string memory =
      "memory --predict --threads 1 --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50 --batch "
      "1 --context 16 --mode step --ops ";
  for (const char* format : {"json", "csv"}) {
    const std::string end = std::string(".") + format;
    for (const std::string ops : {"fused", "primitive"}) {
      ASSERT_EQ(run_tracestep(
                    words_of(memory + ops + " --format " + format + " --output " + ops + end), here)
                    .status,
                0);
    }
    const std::string pair = "fused" + end + " primitive" + end + " --ignore ops";
    const ProgramRun gate =
        run_tracestep(words_of("compare " + pair + " --fail-on-regression 1"), here);
    EXPECT_EQ(gate.status, 1);
    EXPECT_TRUE(contains(gate.err, "saved_bytes")) << gate.err;
    // A file of comma-separated values has the cells only.
    EXPECT_EQ(contains(gate.err, "most in total"), false) << gate.err;
    EXPECT_EQ(contains(gate.err, "most in layers.0.attn.rope mul"), end == ".json") << gate.err;
    const std::string same = "fused" + end + " fused" + end;
    EXPECT_EQ(run_tracestep(words_of("compare " + same + " --fail-on-regression 0"), here).status,
              0);
  }
}

TEST(CompareCommandTest, ADamagedFileIsNoComparison) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  const std::string good =
      "size,context,mode,status,peak_bytes,samples_ms\ntiny,8,step,ok,1,\"[1]\"\n";
  folder.write("good.csv", good);
  std::string two = good, not_a_number = good;
  folder.write("two.csv", two.replace(two.find("mode"), 4, "size"));
  folder.write("nan.csv", not_a_number.replace(not_a_number.find(",8,"), 3, ",nan,"));
  folder.write("short.csv", good + "tiny,16\n");
  folder.write("other.csv", "size,context,mode,status,samples_ms\ntiny,16,step,oom,\n");
  for (const char* file : {"two.csv", "nan.csv", "short.csv"}) {
    for (const char* gate : {"", " --fail-on-regression 1"}) {
      const ProgramRun run =
          run_tracestep(words_of(fmt::format("compare {} good.csv{}", file, gate)), here);
      EXPECT_EQ(run.status, 3) << run.err;
      EXPECT_TRUE(contains(run.err, "line ")) << run.err;
    }
  }
  const ProgramRun apart = run_tracestep(words_of("compare other.csv good.csv"), here);
  EXPECT_EQ(apart.status, 0);
  EXPECT_FALSE(contains(apart.out, "all are the same")) << apart.out;
  EXPECT_TRUE(contains(apart.out, "no figures were compared")) << apart.out;
  EXPECT_EQ(
      run_tracestep(words_of("compare other.csv good.csv --fail-on-regression 1"), here).status, 7);
}

TEST(CompareCommandTest, AProfileNamesTheKernelThatIsLaunchedMoreOften) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  const std::string profile =
      "profile --threads 1 --d-model 16 --d-ff 16 --layers 1 --heads 2 --vocab 20 --batch 1 "
      "--context 8 --mode forward --format json --ops ";
  for (const std::string ops : {"fused", "primitive"}) {
    ASSERT_EQ(run_tracestep(words_of(profile + ops + " --output " + ops + ".json"), here).status,
              0);
  }
  const ProgramRun gate = run_tracestep(
      words_of("compare fused.json primitive.json --ignore ops --fail-on-regression 0"), here);
  EXPECT_EQ(gate.status, 1);
  EXPECT_TRUE(contains(gate.err, "launches")) << gate.err;
  EXPECT_TRUE(contains(gate.err, "most in ")) << gate.err;
  const ProgramRun same = run_tracestep(words_of("compare fused.json fused.json "
                                                 "--fail-on-regression 0"),
                                        here);
  EXPECT_EQ(same.status, 0) << same.err;
}

TEST(CompareCommandTest, AStudyIsReadByCompareAndByExplain) {
  const TempFolder folder;
  const RunHow here{.folder = folder.path()};
  Json study = Json::parse(result(100), "a");
  study["schema"] = "tracestep.study/2";
  study["tables"] = Json::object();
  study["tables"]["cells"] = Json::object();
  study["tables"]["cells"]["rows"] = study.at("rows");
  folder.write("study.json", study.dump());
  folder.write("bench.json", result(110));
  const ProgramRun run =
      run_tracestep(words_of("compare study.json bench.json --format json"), here);
  ASSERT_EQ(run.status, 0) << run.err;
  const Json rows = Json::parse(run.out, "compare").at("tables").at("compare").at("rows");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.items()[0].at("verdict").as_string(), "slower");
  const ProgramRun explain = run_tracestep(words_of("explain warm-up --from study.json"), here);
  EXPECT_EQ(explain.status, 0) << explain.err;
}

TEST(CompareCommandTest, AResultOfAnEarlierVersionMatchesOneOfNow) {
  const TempFolder folder;
  const ProgramRun now = run_tracestep(
      words_of("bench --threads 1 --warmup 0 --steps 6 --d-model 32 --d-ff 64 --layers 1 --heads 2 "
               "--vocab 50 --batch 1 --context 16 --mode forward,step --roof 1 --format json "
               "--output now.json"),
      {.folder = folder.path()});
  ASSERT_EQ(now.status, 0) << now.err;
  const std::string before = (testing::source_folder() / "tests/cli/bench_1/result.json").string();
  const ProgramRun run = run_tracestep(words_of("compare " + before + " now.json --format json"),
                                       {.folder = folder.path()});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json rows = Json::parse(run.out, "compare").at("tables").at("compare").at("rows");
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows.items()) {
    EXPECT_FALSE(row.at("median_b_ms").is_null()) << row.dump();
  }
}

}  // namespace
}  // namespace tracestep
