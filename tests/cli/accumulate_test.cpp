// Steps in micro-batches on every command that measures, or says beforehand: one program each.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

const std::string kStep =
    " --d-model 32 --d-ff 64 --layers 2 --heads 2 --vocab 50 --context 8 --batch 2 --threads 1";

Json json_of(const std::string& arguments) {
  const ProgramRun run = run_tracestep(words_of(arguments + " --format json"));
  EXPECT_EQ(run.status, 0) << arguments << "\n" << run.err;
  return Json::parse(run.out, arguments);
}

TEST(AccumulateTest, ABenchCountsAllMicroBatches) {
  for (const std::string how : {" --executor eager", " --executor compiled --precision bf16"}) {
    const Json result =
        json_of("bench --accumulate 1,2,5 --warmup 1 --steps 2 --roof 0" + how + kStep);
    const auto& rows = result.at("rows").items();
    ASSERT_EQ(rows.size(), 3u);
    for (const Json& row : rows) {
      const std::int64_t parts = row.at("accumulate").as_int();
      SCOPED_TRACE(parts);
      EXPECT_EQ(row.at("status").as_string(), "ok");
      EXPECT_EQ(row.at("peak_bytes").as_int(), row.at("predicted_peak_bytes").as_int());
      EXPECT_EQ(row.at("flops").as_int(), parts * rows[0].at("flops").as_int());
      EXPECT_EQ(row.at("saved_bytes").as_int(), rows[0].at("saved_bytes").as_int());
      const double tokens =
          row.at("tokens_per_s").as_double() * row.at("wall_ms").as_double() / 1e3;
      EXPECT_NEAR(tokens, static_cast<double>(parts * 2 * 8), 1e-3);
    }
    // A gradient for each weight, and the tokens of three micro-batches more.
    EXPECT_EQ(rows[2].at("peak_bytes").as_int() - rows[1].at("peak_bytes").as_int(),
              3 * 2 * 2 * 8 * 8);
    const std::int64_t launches[] = {rows[0].at("launches").as_int(),
                                     rows[1].at("launches").as_int(),
                                     rows[2].at("launches").as_int()};
    EXPECT_GT(launches[1], launches[0] * 3 / 2);
    EXPECT_EQ((launches[2] - launches[1]) % 3, 0);
  }
}

TEST(AccumulateTest, OtherCommandsSayWhatABenchMeasures) {
  const std::string step = " --accumulate 3 --executor compiled --precision bf16" + kStep;
  const std::int64_t peak = json_of("bench --warmup 0 --steps 1 --roof 0" + step)
                                .at("rows")
                                .items()[0]
                                .at("peak_bytes")
                                .as_int();
  for (const std::string command : {"memory --predict", "memory"}) {
    const Json result = json_of(command + step);
    const Json& row = result.at("rows").items()[0];
    EXPECT_EQ(row.at("predicted_peak_bytes").as_int(), peak) << command;
  }
  const auto predicted = [&](const std::string& accumulate) {
    return json_of("predict --published H100" + kStep + " --accumulate " + accumulate)
        .at("rows")
        .items()[0]
        .at("predicted_ms")
        .as_double();
  };
  const double two = predicted("2"), five = predicted("5"), eight = predicted("8");
  EXPECT_NEAR(eight - five, five - two, 1e-6 * eight);
  EXPECT_GT(two, 0);
  json_of("profile --steps 1" + step);
  json_of("fit --memory-limit 1GiB" + step);
}

TEST(AccumulateTest, AGridLeavesItToModesWithAnUpdate) {
  const Json result = json_of("memory --predict --mode forward,step --accumulate 1,4" + kStep);
  EXPECT_EQ(result.at("rows").size(), 3u);  // forward has no other form
}

}  // namespace
}  // namespace tracestep
