// Every command that allocates says at once what has no room, whoever sets the bound: the kernel, a
// control group of version 2 or 1, or a limit that is larger than the machine.
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/run_binary.h"
#include "support/memory_root.h"

namespace tracestep::cli {
namespace {

using ::testing::HasSubstr;
using testing::MemoryRoot;

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;
constexpr std::int64_t kLittle = 48 << 10;

const std::string kSizes = " --d-model 32 --d-ff 64 --layers 1 --heads 2 --threads 1";
const std::string kStep = kSizes + " --vocab 64 --batch 2 --context 16 --mode step";

// The smallest run of each command that allocates by what it is asked for.
const std::map<std::string, std::string>& allocating() {
  static const std::map<std::string, std::string> all{
      {"attention", "--batch 2 --width 8 --context 64 --steps 1 --threads 1"},
      {"bench", "--steps 1 --warmup 0" + kStep},
      {"comm", "--collective all_reduce --ranks 2 --bytes 1MiB --calls 1"},
      {"compile", "--part steps --ops fused --executor eager --steps 1 --warmup 0" + kStep},
      {"eval", "--text text.txt --batch 2 --context 16" + kSizes},
      {"generate", "--prompt-tokens 1,2 --max-tokens 2 --vocab 64" + kSizes},
      {"launch", "-n 2 -- bench --steps 1 --warmup 0 --parallel dp=2" + kStep},
      {"memory", kStep},
      {"precision", "--context 16 --batch 2" + kSizes},
      {"profile", "--steps 1 --no-ceilings" + kStep},
      {"throughput", "--steps 3 --batch 2 --vocab 64 --context 16" + kSizes},
      {"train", "--text text.txt --steps 1 --batch 2 --context 16" + kSizes}};
  return all;
}

// Commands that need no room of this kind, and why.
const std::map<std::string, std::string>& others() {
  static const std::map<std::string, std::string> all{
      {"compare", "reads results, or runs the commands above"},
      {"completions", "prints a text"},
      {"doctor", "allocates the same on every machine"},
      {"explain", "predicts"},
      {"export", "holds one tensor at a time"},
      {"fit", "predicts"},
      {"merge", "reads results"},
      {"models", "prints a table"},
      {"pivot", "reads a result"},
      {"predict", "predicts, and calibrates by the same steps on every machine"},
      {"read", "holds a recording, a tenth of its bytes"},
      {"show", "prints programs"},
      {"study", "leaves out what does not fit, each part by itself"},
      {"version", "prints a text"}};
  return all;
}

class RoomOfCommandsTest : public ::testing::TestWithParam<std::string> {
 protected:
  RoomOfCommandsTest() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the quick brown fox jumps over the lazy dog. ";
    folder_.write("text.txt", text);
  }

  ProgramRun run(const MemoryRoot& root, const std::string& more) const {
    return run_tracestep(words_of(GetParam() + " " + allocating().at(GetParam()) + more),
                         {.folder = folder_.path(), .environment = {root.variable()}});
  }

  TempFolder folder_;
};

TEST(RoomTest, EveryCommandIsKnownToAllocateOrNotTo) {
  for (const Command& command : all_commands()) {
    EXPECT_EQ(allocating().contains(command.name) + others().contains(command.name), 1)
        << command.name << ": say here what it allocates";
  }
}

TEST_P(RoomOfCommandsTest, WhatDoesNotFitIsSaidWhoeverSetsTheBound) {
  const std::string limit = " --memory-limit 1TiB";
  const auto expect_refused = [&](const MemoryRoot& root, const std::string& more) {
    const ProgramRun refused = run(root, more);
    EXPECT_EQ(refused.status, 4) << refused.err << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("does not fit: it needs "));
    EXPECT_THAT(refused.err, HasSubstr("--memory-limit none tries anyway"));
  };
  expect_refused(MemoryRoot(kLittle), "");
  expect_refused(MemoryRoot(kLittle), limit);
  for (const int version : {2, 1}) {
    expect_refused(MemoryRoot(kPlenty).in_group(version, kPlenty, kPlenty - kLittle), "");
  }
}

TEST_P(RoomOfCommandsTest, NoneTriesAnyway) {
  const ProgramRun tried = run(MemoryRoot(kLittle), " --memory-limit none");
  EXPECT_EQ(tried.status, 0) << tried.err;
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& [name, words] : allocating()) out.push_back(name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, RoomOfCommandsTest, ::testing::ValuesIn(names()),
                         [](const auto& one) { return one.param; });

// A grid goes on beside what has no room, whose row says so.
TEST(RoomTest, ACellWithoutRoomIsARowOfItsGrid) {
  const std::string model = kSizes + " --vocab 64 --mode step";
  const std::vector<std::string> grids{
      "bench --steps 1 --warmup 0 --batch 1 --context 8,2048" + model,
      "memory --batch 1 --context 8,2048" + model,
      "profile --steps 1 --no-ceilings --batch 1 --context 8,2048" + model,
      "throughput --steps 3 --context 16 --batch 1,4096" + model,
      "attention --batch 2 --width 8 --context 8,1024 --steps 1 --threads 1",
      "comm --collective all_reduce --ranks 2 --bytes 4KiB,1GiB --calls 1"};
  const MemoryRoot root(4 << 20);
  for (const std::string& grid : grids) {
    const ProgramRun done =
        run_tracestep(words_of(grid + " --format json"), {.environment = {root.variable()}});
    ASSERT_EQ(done.status, 0) << grid << done.err;
    std::vector<std::string> found;
    const Json result = Json::parse(done.out, grid);
    for (const Json& row : result.at("rows").items()) {
      const std::string status = row.at("status").as_string();  // one of several rows of a cell
      if (found.empty() || found.back() != status) found.push_back(status);
    }
    EXPECT_THAT(found, ::testing::ElementsAre("ok", "oom")) << grid;
  }
}

// Nothing is written or made before: neither a log and a checkpoint nor the weights of the model.
TEST(RoomTest, ATrainingThatDoesNotFitIsRefusedAtOnceAndNamesWhatWouldFit) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog. ";
  folder.write("text.txt", text);
  const MemoryRoot root(std::int64_t{1} << 30);
  const ProgramRun done =
      run_tracestep(words_of("train --size medium --text text.txt --batch 4 --context 128 "
                             "--threads 2 --checkpoint run --log log.jsonl"),
                    {.folder = folder.path(), .environment = {root.variable()}});
  EXPECT_EQ(done.status, 4);
  EXPECT_THAT(done.err, HasSubstr("[cpu] it does not fit: it needs "));
  EXPECT_THAT(done.err, HasSubstr("and this machine has 921"));
  EXPECT_THAT(done.err, HasSubstr("tracestep fit --size medium"));
  EXPECT_THAT(done.err, HasSubstr("says what would fit"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  EXPECT_FALSE(std::filesystem::exists(folder / "log.jsonl"));
}

}  // namespace
}  // namespace tracestep::cli
