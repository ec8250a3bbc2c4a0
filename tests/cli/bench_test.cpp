// bench and memory: grids, limits, interrupted sweeps. On the null device, which takes no time.
#include <csignal>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

const char* const kSmallModel = " --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50";

Json json_of(const std::string& arguments, int status = 0, const RunHow& how = {}) {
  const ProgramRun run = run_tracestep(words_of(arguments + " --format json"), how);
  EXPECT_EQ(run.status, status) << arguments << "\n" << run.err;
  return Json::parse(run.out, arguments);
}

TEST(BenchTest, ABudgetThatCannotBeMetIsTheStatusOfItsRow) {
  const TempFolder folder;
  const std::string options = std::string(" --batch 2 --threads 1 --warmup 0 --steps 1 --roof 0") +
                              kSmallModel + " --recompute budget=500KiB --context ";
  for (const std::string command : {"bench", "bench --resume r.jsonl", "bench --processes 2"}) {
    const Json result = json_of(command + options + "8,64,16", 0, {.folder = folder.path()});
    const auto& rows = result.at("rows").items();
    ASSERT_EQ(rows.size(), 3u) << command;
    EXPECT_EQ(rows[1].at("status").as_string(), "oom");
    EXPECT_GT(rows[1].at("predicted_peak_bytes").as_int(), 500 << 10);
    EXPECT_NE(rows[1].at("detail").as_string().find("the least peak is"), std::string::npos);
    EXPECT_EQ(rows[2].at("status").as_string(), "ok");
  }
  const ProgramRun alone = run_tracestep(words_of("bench" + options + "64"));
  EXPECT_EQ(alone.status, 4);
  EXPECT_NE(alone.out.find("oom"), std::string::npos);
  EXPECT_NE(alone.err.find("the least peak is"), std::string::npos) << alone.err;
}

TEST(BenchTest, CellsOfRoundsAreComparedWithTheFirstAndTheAnswerComesFirst) {
  const std::string bench =
      std::string("bench --threads 1 --batch 2 --warmup 1 --steps 2 --roof 0") + kSmallModel +
      " --mode forward --context 8,256 --rounds ";
  const Json result = json_of(bench + "9");
  ASSERT_EQ(result.at("rows").size(), 2u);
  EXPECT_EQ(result.at("rows").items()[0].at("visit_samples").size(), 9u);
  EXPECT_EQ(result.at("rows").items()[0].at("samples_ms").size(), 18u);
  EXPECT_TRUE(result.at("rows").items()[0].at("process_samples").is_null())
      << "for a comparison of two results they are one process";
  const Json& beside = result.at("tables").at("beside").at("rows").items()[0];
  EXPECT_EQ(beside.at("rounds").as_int(), 9);
  EXPECT_EQ(beside.at("is").as_string(), "slower");
  EXPECT_GT(beside.at("ratio").as_double(), 2);
  const ProgramRun text = run_tracestep(words_of(bench + "9"));
  EXPECT_EQ(text.out.find("context 256 takes "), 0u) << text.out;
  const ProgramRun few = run_tracestep(words_of(bench + "3"));
  EXPECT_NE(few.out.find("too few for a verdict: nine can tell"), std::string::npos) << few.out;
}

TEST(BenchTest, CopiesOfACellAreCellsOfTheirOwn) {
  const std::string bench =
      std::string("bench --device null --context 8 --steps 1 --roof 0") + kSmallModel;
  const Json result = json_of(bench + " --rounds 2 --repeat 2");
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].at("copy").is_null());
  EXPECT_EQ(rows[1].at("copy").as_int(), 2);
  EXPECT_EQ(rows[1].at("cell").at("copy").as_int(), 2);
  for (const char* refused :
       {" --repeat 2", " --rounds 2 --max-noise 1", " --rounds 2 --warmup-study 0,1"}) {
    EXPECT_EQ(run_tracestep(words_of(bench + refused)).status, 2) << refused;
  }
}

TEST(BenchTest, AGridHasOneRowPerCellWithAllColumns) {
  const Json result = json_of(std::string("bench --device null --context 8,16 --mode inference,step"
                                          " --ops primitive,fused --warmup 1 --steps 2") +
                              kSmallModel);
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.bench/1");
  EXPECT_TRUE(result.at("environment").is_object());
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 8u);
  for (const char* column : {"size",
                             "context",
                             "batch",
                             "vocab",
                             "mode",
                             "precision",
                             "ops",
                             "executor",
                             "device",
                             "status",
                             "parameters",
                             "samples_ms",
                             "mean_ms",
                             "std_ms",
                             "median_ms",
                             "min_ms",
                             "p95_ms",
                             "warmup_ms",
                             "wall_ms",
                             "issue_ms",
                             "device_span_ms",
                             "device_busy_ms",
                             "peak_bytes",
                             "predicted_peak_bytes",
                             "untracked_bytes",
                             "outside_bytes",
                             "flops",
                             "tflops",
                             "tokens_per_s",
                             "launches"}) {
    EXPECT_NE(rows[0].find(column), nullptr) << column;
  }
  for (const Json& row : rows) {
    EXPECT_EQ(row.at("status").as_string(), "ok");
    EXPECT_EQ(row.at("peak_bytes"), row.at("predicted_peak_bytes"));
    // Nothing was computed, so nothing took time or was fast.
    EXPECT_EQ(row.at("samples_ms").size(), 0u);
    EXPECT_EQ(row.at("warmup_ms").size(), 0u);
    EXPECT_TRUE(row.at("median_ms").is_null());
    EXPECT_TRUE(row.at("tflops").is_null());
    EXPECT_TRUE(row.at("tokens_per_s").is_null());
  }
}

TEST(BenchTest, SeveralProcessesAreOneRowThatKnowsThem) {
  const std::string grid =
      std::string(
          "bench --threads 1 --roof 0 --batch 2 --context 8 --mode inference,step --warmup 1 "
          "--steps 3") +
      kSmallModel;
  const Json result = json_of(grid + " --processes 2");
  ASSERT_EQ(result.at("rows").size(), 2u);
  for (const Json& row : result.at("rows").items()) {
    EXPECT_EQ(row.at("samples_ms").size(), 6u);
    EXPECT_EQ(row.at("process_samples"), Json(Json::Array{3, 3}));
    EXPECT_EQ(row.at("warmup_ms").size(), 1u);  // the first one's
  }
  const Json alone = json_of(grid);
  EXPECT_TRUE(alone.at("rows").items()[0].at("process_samples").is_null());
  EXPECT_EQ(alone.at("rows").items()[1].at("mode"), result.at("rows").items()[1].at("mode"));
  EXPECT_EQ(run_tracestep(words_of(grid + " --processes 2 --warmup-study 0,1")).status, 2);
}

// Tokens and FLOPs of a row are those of all micro-batches, whoever measured them.
TEST(BenchTest, MicroBatchesAreCountedInEveryFigure) {
  const std::string grid =
      std::string(
          "bench --threads 1 --roof 0 --batch 2 --context 8 --accumulate 3 --warmup 1 --steps 3") +
      kSmallModel;
  for (const char* processes : {"", " --processes 2"}) {
    const Json result = json_of(grid + processes);
    const Json& row = result.at("rows").items()[0];
    EXPECT_DOUBLE_EQ(row.at("tokens_per_s").as_double() * row.at("median_ms").as_double(),
                     3 * 2 * 8 * 1e3);
    EXPECT_THAT(row.at("verdict").as_string(), testing::Not(testing::HasSubstr("invalid")));
  }
}

// The title of a single row names each setting that is not the default: no column does.
TEST(BenchTest, TheTitleHasWhatIsNotAsUsual) {
  const ProgramRun run =
      run_tracestep(words_of("bench --roof 0 --batch 2 --context 8 --optimizer muon --executor "
                             "arena --warmup 0 --steps 1" +
                             std::string(kSmallModel)));
  ASSERT_EQ(run.status, 0) << run.err;
  std::string flat = run.out;
  std::ranges::replace(flat, '\n', ' ');
  EXPECT_THAT(flat, testing::HasSubstr(", executor arena, optimizer muon, "));
  EXPECT_THAT(flat, testing::Not(testing::HasSubstr("moments")));
}

TEST(BenchTest, EachRowSaysInWhichStateTheHostWas) {
  const Json row =
      json_of(std::string("bench --device null --steps 2") + kSmallModel).at("rows").items()[0];
  for (const char* when : {"host_before", "host_after"}) {
    EXPECT_TRUE(row.at(when).at("load_1min").is_number()) << when;
    EXPECT_NE(row.at(when).find("governor"), nullptr);
    EXPECT_NE(row.at(when).find("clock_high_mhz"), nullptr);
  }
  EXPECT_NE(row.find("others_cores"), nullptr);
}

TEST(BenchTest, TheOracleIsMeasuredLikeAnyDevice) {
  const Json result = json_of(std::string("bench --device reference --context 4 --batch 1 "
                                          "--mode inference,step --warmup 0 --steps 1") +
                              kSmallModel);
  ASSERT_EQ(result.at("rows").size(), 2u);
  for (const Json& row : result.at("rows").items()) {
    EXPECT_EQ(row.at("status").as_string(), "ok");
    EXPECT_EQ(row.at("peak_bytes"), row.at("predicted_peak_bytes"));
  }
}

TEST(BenchTest, ASweepGoesOnAfterARowThatRunsOutOfMemory) {
  const std::string arguments = std::string(
                                    "bench --device null --mode step --steps 1 --warmup 0 "
                                    "--context 512,8 --memory-limit 8MiB") +
                                kSmallModel;
  const Json result = json_of(arguments);
  ASSERT_EQ(result.at("rows").size(), 2u);
  EXPECT_EQ(result.at("rows").items()[0].at("status").as_string(), "oom");
  EXPECT_TRUE(result.at("rows").items()[0].at("median_ms").is_null());
  EXPECT_EQ(result.at("rows").items()[1].at("status").as_string(), "ok");
}

TEST(BenchTest, ASingleCellThatRunsOutOfMemoryEndsWithStatusFour) {
  const Json result = json_of(std::string("bench --device null --mode step --steps 1 --warmup 0 "
                                          "--context 512 --memory-limit 1MiB") +
                                  kSmallModel,
                              4);
  EXPECT_EQ(result.at("rows").items()[0].at("status").as_string(), "oom");
}

TEST(BenchTest, ASignalEndsTheSweepWithTheRowsThatAreDone) {
  // The first cell is done in no time, the second would take minutes.
  const ProgramRun run = run_tracestep(
      words_of("bench --device reference --batch 1 --context 2,512 --mode step --warmup 0 "
               "--steps 200 --d-model 16 --d-ff 16 --layers 1 --heads 2 --vocab 20 --format json"),
      {.while_running = [](pid_t child) { ::kill(child, SIGINT); }, .delay_ms = 2000});
  EXPECT_EQ(run.status, 130) << run.err;
  EXPECT_TRUE(contains(run.err, "stopped by a signal after 1 of 2 rows")) << run.err;
  EXPECT_EQ(Json::parse(run.out, "bench").at("rows").size(), 1u);
}

TEST(BenchTest, ASignalBeforeTheFirstRowLeavesNoEmptyTable) {
  const ProgramRun run = run_tracestep(
      words_of(
          "bench --device reference --batch 1 --context 512 --mode step --warmup 0 --steps 200 "
          "--d-model 16 --d-ff 16 --layers 1 --heads 2 --vocab 20"),
      {.while_running = [](pid_t child) { ::kill(child, SIGINT); }, .delay_ms = 500});
  EXPECT_EQ(run.status, 130) << run.err;
  EXPECT_TRUE(contains(run.err, "nothing was measured yet")) << run.err;
  EXPECT_EQ(run.out, "");
}

TEST(BenchTest, SamplingByNoiseNamesWhyItEnded) {
  const std::string cell = std::string("bench --context 8 --mode inference --warmup 1 --roof 0") +
                           " --d-model 16 --d-ff 16 --layers 1 --heads 2 --vocab 20";
  const Json easy = json_of(cell + " --max-noise 1000000000 --steps 7");
  EXPECT_EQ(easy.at("rows").items()[0].at("stopped_by").as_string(), "noise");
  EXPECT_EQ(easy.at("rows").items()[0].at("samples_ms").size(), 7u);
  const Json hard = json_of(cell + " --max-noise 0.001 --max-steps 12");
  EXPECT_EQ(hard.at("rows").items()[0].at("stopped_by").as_string(), "max-steps");
  EXPECT_EQ(hard.at("rows").items()[0].at("samples_ms").size(), 12u);
  EXPECT_TRUE(contains(hard.at("notes").dump(), "criterion_not_met"));
  const Json& row = hard.at("rows").items()[0];
  EXPECT_LE(row.at("interval_low_ms").as_double(), row.at("median_ms").as_double());
  EXPECT_GE(row.at("interval_high_ms").as_double(), row.at("median_ms").as_double());
}

TEST(BenchTest, TheValidityCheckerSpeaksUnderEveryTable) {
  const Json result = json_of(std::string("bench --context 8 --mode inference,step --warmup 0 "
                                          "--steps 3 --roof 0.000000001") +
                              kSmallModel);
  for (const Json& row : result.at("rows").items()) {
    EXPECT_EQ(row.at("verdict").as_string(), "invalid: faster_than_the_roof");
  }
  const std::string notes = result.at("notes").dump();
  for (const char* planted : {"no_warmup", "too_few_samples", "faster_than_the_roof",
                              "validity: 0 of 2 measured rows without objection"}) {
    EXPECT_TRUE(contains(notes, planted)) << planted;
  }
}

TEST(BenchTest, TheWarmupStudyStartsAProcessForEveryRow) {
  const Json result = json_of(std::string("bench --threads 1 --context 8 --mode inference,step "
                                          "--steps 3 --warmup-study 0,2") +
                              kSmallModel);
  EXPECT_EQ(result.at("schema").as_string(), "tracestep.warmup/1");
  const auto& rows = result.at("rows").items();
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t warmup = i % 2 == 0 ? 0 : 2;
    EXPECT_EQ(rows[i].at("mode").as_string(), i < 2 ? "inference" : "step");
    EXPECT_EQ(rows[i].at("warmup").as_int(), warmup);
    EXPECT_EQ(rows[i].at("steps").as_int(), 3);
    EXPECT_EQ(rows[i].at("steps_ms").size(), static_cast<std::size_t>(warmup) + 3);
    EXPECT_EQ(rows[i].at("start_ms"), rows[i].at("steps_ms").items()[0]);
  }
  const ProgramRun both = run_tracestep(words_of("bench --warmup-study 0,1 --max-noise 1"));
  EXPECT_EQ(both.status, 2);
}

TEST(MemoryTest, PredictionsAreWhatBenchMeasures) {
  const std::string grid = std::string(
                               " --context 16 --mode "
                               "inference,forward,forward-backward,step"
                               " --ops primitive,fused") +
                           kSmallModel;
  const Json predicted = json_of("memory --predict" + grid);
  const Json measured = json_of("bench --device cpu --warmup 0 --steps 1" + grid);
  ASSERT_EQ(predicted.at("rows").size(), 8u);
  ASSERT_EQ(measured.at("rows").size(), 8u);
  for (std::size_t i = 0; i < 8; ++i) {
    const Json& a = predicted.at("rows").items()[i];
    const Json& b = measured.at("rows").items()[i];
    EXPECT_EQ(a.at("mode"), b.at("mode"));
    EXPECT_EQ(a.at("peak_bytes"), b.at("peak_bytes")) << a.at("mode").dump() << a.at("ops").dump();
    std::int64_t total = 0;
    for (const auto& [category, bytes] : a.at("by_category").members()) total += bytes.as_int();
    EXPECT_EQ(total, a.at("peak_bytes").as_int());
  }
}

TEST(MemoryTest, EveryPresetHasItsParameterCountAndItsLargestBuffers) {
  const Json result =
      json_of("memory --predict --size small,medium,large,xl,2.7B --mode inference --context 128");
  const std::int64_t counts[] = {128625408, 423183360, 969411840, 1998235200, 3406809600};
  ASSERT_EQ(result.at("rows").size(), std::size(counts));
  for (std::size_t i = 0; i < std::size(counts); ++i) {
    const Json& row = result.at("rows").items()[i];
    EXPECT_EQ(row.at("parameters").as_int(), counts[i]);
    ASSERT_EQ(row.at("largest").size(), 10u);
    for (const char* key : {"path", "op", "bytes", "category", "phase", "reason"}) {
      EXPECT_NE(row.at("largest").items()[0].find(key), nullptr) << key;
    }
  }
}

TEST(MemoryTest, TheStatusComparesThePeakWithTheLimit) {
  const Json result = json_of("memory --predict --size small,xl --memory-limit 8GiB");
  EXPECT_EQ(result.at("rows").items()[0].at("status").as_string(), "ok");
  EXPECT_EQ(result.at("rows").items()[1].at("status").as_string(), "oom");
}

}  // namespace
}  // namespace tracestep
