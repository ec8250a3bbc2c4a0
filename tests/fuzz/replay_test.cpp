// Every file of tests/fuzz/corpus through its fuzz target: seeds, hostile cases made by hand, and
// whatever fuzzing has found. It passes when nothing aborts.
#include <array>
#include <set>

#include <gtest/gtest.h>

#include "fuzz/fuzz_target.h"
#include "support/paths.h"
#include "support/temp_folder.h"

using Target = int(const std::uint8_t*, std::size_t);
extern "C" Target fuzz_captured, fuzz_checkpoint, fuzz_documents, fuzz_gzip, fuzz_json,
    fuzz_memory_trace, fuzz_message, fuzz_pickle, fuzz_program, fuzz_ranks, fuzz_result,
    fuzz_result_csv, fuzz_safetensors, fuzz_snapshot, fuzz_token_file, fuzz_tokenizer,
    fuzz_tokenizer_json, fuzz_trace, fuzz_weight_index;

namespace tracestep {
namespace {

struct Named {
  const char* name;
  Target* run;
};

constexpr std::array<Named, 19> kTargets = {{
    {"captured", fuzz_captured},
    {"checkpoint", fuzz_checkpoint},
    {"documents", fuzz_documents},
    {"gzip", fuzz_gzip},
    {"json", fuzz_json},
    {"memory_trace", fuzz_memory_trace},
    {"message", fuzz_message},
    {"pickle", fuzz_pickle},
    {"program", fuzz_program},
    {"ranks", fuzz_ranks},
    {"result", fuzz_result},
    {"result_csv", fuzz_result_csv},
    {"safetensors", fuzz_safetensors},
    {"snapshot", fuzz_snapshot},
    {"token_file", fuzz_token_file},
    {"tokenizer", fuzz_tokenizer},
    {"tokenizer_json", fuzz_tokenizer_json},
    {"trace", fuzz_trace},
    {"weight_index", fuzz_weight_index},
}};

std::filesystem::path corpus() {
  return testing::source_folder() / "tests/fuzz/corpus";
}

class FuzzReplayTest : public ::testing::TestWithParam<Named> {};

TEST_P(FuzzReplayTest, EveryFileOfTheCorpusIsTakenOrRefused) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus() / GetParam().name)) {
    SCOPED_TRACE(entry.path().string());
    const std::string bytes = content_of(entry.path());
    EXPECT_EQ(GetParam().run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    ++files;
  }
  EXPECT_GE(files, 3);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplayTest, ::testing::ValuesIn(kTargets),
                         [](const auto& named) { return std::string(named.param.name); });

TEST(FuzzCorpusTest, EveryFolderHasATargetAndEveryTargetAFolder) {
  std::set<std::string> folders, targets;
  for (const auto& entry : std::filesystem::directory_iterator(corpus())) {
    folders.insert(entry.path().filename().string());
  }
  for (const Named& target : kTargets) targets.insert(target.name);
  EXPECT_EQ(folders, targets);
}

}  // namespace
}  // namespace tracestep
