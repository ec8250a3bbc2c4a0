// bench --op as a person uses it: an op by itself, forward and gradient, warm and cold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_binary.h"
#include "support/tables.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramRun run(const std::string& words) {
  return run_tracestep(words_of("bench --threads 1 --steps 2 --warmup 1 --roof 0 " + words));
}

std::vector<std::string> column(const ProgramRun& run, const char* name) {
  std::vector<std::string> out;
  const Json result = Json::parse(run.out, "bench");
  for (const Json& row : result.at("rows").items()) out.push_back(row.at(name).dump());
  return out;
}

TEST(BenchOpTest, ForwardAndGradientOfEachStateOfTheCaches) {
  const ProgramRun shown = run("--op matmul --shape 32x16+16x64");
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, StartsWith("matmul of 32x16+16x64 takes "));
  EXPECT_THAT(shown.out, HasSubstr(" With swept caches it takes "));
  EXPECT_THAT(shown.out, HasSubstr(" Its gradient takes "));
}

// A product has 2·M·N·K FLOPs, and its gradient two such products.
TEST(BenchOpTest, WorkIsThatOfTheOpAndNotOfWhatStandsAroundIt) {
  const ProgramRun product = run("--op matmul --shape 32x16+16x64 --format json");
  ASSERT_EQ(product.status, 0) << product.err;
  const std::string forward = std::to_string(2 * 32 * 16 * 64),
                    gradient = std::to_string(4 * 32 * 16 * 64);
  EXPECT_EQ(column(product, "flops"), (std::vector{forward, gradient, forward, gradient}));
  EXPECT_EQ(column(product, "launches"), (std::vector<std::string>{"1", "2", "1", "2"}));
  EXPECT_EQ(column(product, "bytes")[0], std::to_string(4 * (32 * 16 + 16 * 64 + 32 * 64)));
  EXPECT_EQ(column(product, "peak_bytes"), column(product, "predicted_peak_bytes"));
}

// More than caches hold is read and written before each part, and is no part of it.
TEST(BenchOpTest, ColdPartsHaveTheWorkOfWarmOnesBehindASweep) {
  const ProgramRun both = run("--op gelu --shape 64x64 --device null --format json");
  ASSERT_EQ(both.status, 0) << both.err;
  const std::vector<std::string> bytes = column(both, "bytes"), launches = column(both, "launches");
  const std::vector<std::string> peaks = column(both, "predicted_peak_bytes");
  ASSERT_EQ(bytes.size(), 4u);
  for (std::size_t warm : {0, 1}) {
    EXPECT_EQ(bytes[warm], bytes[warm + 2]);
    EXPECT_EQ(launches[warm], launches[warm + 2]);
    EXPECT_GE(std::stoll(peaks[warm + 2]) - std::stoll(peaks[warm]), 256 << 20);
  }
}

TEST(BenchOpTest, OpsWithoutAGradientHaveTheirForwardAlone) {
  const ProgramRun one = run("--op iota{shape=[64],dtype=i64,axis=0} --cache warm --format json");
  ASSERT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(column(one, "part"), (std::vector<std::string>{"\"forward\""}));
}

TEST(BenchOpTest, AttributesIndicesAndOtherDtypesAreRead) {
  const ProgramRun sums =
      run("--op sum{axes=[0]},sum{axes=[1]} --shape 8x4 --cache warm --format json");
  ASSERT_EQ(sums.status, 0) << sums.err;
  EXPECT_EQ(column(sums, "op")[1], "\"sum{axes=[1]}\"");
  for (const char* words : {"--op gather --shape 50x8+4x6:50", "--op add --shape 8x4:bf16+8x4:bf16",
                            "--op softmax --shape 4x8 --precision bf16-pure,fp32"}) {
    const ProgramRun one = run(std::string(words) + " --cache warm");
    EXPECT_EQ(one.status, 0) << words << one.err;
  }
}

TEST(BenchOpTest, AFileOfRowsGoesOnAndDevicesThatOnlyPlanHaveBytes) {
  const TempFolder folder;
  const std::string words =
      "--op gelu --shape 8x8,16x16 --cache warm --resume " + (folder / "rows.jsonl").string();
  ASSERT_EQ(run(words).status, 0);
  EXPECT_THAT(run(words).err, HasSubstr("2 of 2 rows are there"));
  EXPECT_THAT(run("--op gelu --shape 8x8 --device null").out,
              StartsWith("gelu of 8x8 reads and writes 512 B"));
  EXPECT_THAT(run("--op gelu --shape 1024x1024 --memory-limit 1MiB --cache warm").out,
              StartsWith("Out of memory: gelu of 1024x1024 needs "));
}

TEST(BenchOpTest, MistakesAreToldBeforeAnythingIsMeasured) {
  const std::pair<const char*, const char*> cases[] = {
      {"--op gellu --shape 8", "did you mean 'gelu'?"},
      {"--op matmul --shape 8x8", "[--shape] matmul has the operands a, b"},
      {"--op reshape{shape=[4]} --shape 2x2", "[--op] reshape launches nothing"},
      {"--op all_reduce --shape 8", "tracestep comm times collectives"},
      {"--op matmul --shape 8x4+5x8", "[matmul]"},
      {"--op gelu --shape 8x", "[--shape]"},
      {"--op gelu --shape 8 --size tiny", "[--size] it is of a model's step, and --op is one op"},
      {"--op gelu --shape 8 --model gpt2", "[--model] it is of a model's step, and --op is one op"},
      {"--op gelu --shape 8 --loss sum-of-logits", "[--loss] it is of a model's step"},
      {"--op gelu --shape 8 --part-steps 2", "[--part-steps] "},
      {"--op gelu --shape 8 --warmup-study 1,2", "[--warmup-study] it is of a model's step"},
      {"--op gelu --shape 8 --nsys-hint", "[--nsys-hint] it is of a model's step"},
      {"--op gelu", "[--shape] it is missing: gelu has the operands x"},
      {"--op iota{shape=[64],dtype=i64,axis=0} --shape 8", "[--shape] iota has no operands"},
      {"--op gelu --shape 8:f99", "[--shape] there is no dtype \"f99\""},
      {"--shape 8", "[--shape] "}};
  for (const auto& [words, message] : cases) {
    const ProgramRun failed = run(words);
    EXPECT_EQ(failed.status, 2) << words << failed.err;
    EXPECT_THAT(failed.err, HasSubstr(message)) << words;
  }
}

}  // namespace
}  // namespace tracestep
