// Published models by name: their parameters are those that transformers counts on its meta device
// (tests/golden/count_parameters.py), by formula and by program.
#include <chrono>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/error.h"
#include "nn/families.h"
#include "nn/transformer.h"
#include "spec/step_program.h"
#include "support/family_folder.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

struct Counted {
  const char* name;
  std::int64_t parameters;
};
constexpr Counted kCounted[] = {
    {"llama-2-7b", 6738415616},      {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},    {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},  {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},    {"llama-3.2-3b", 3212749824},
    {"smollm2-135m", 134515008},     {"smollm2-360m", 361821120},
    {"smollm2-1.7b", 1711376384},    {"mistral-7b-v0.1", 7241732096},
    {"mistral-7b-v0.3", 7248023552}, {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},      {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},    {"qwen2.5-72b", 72706203648},
    {"qwen3-0.6b", 596049920},       {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},        {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},      {"qwen3-32b", 32762123264},
    {"gemma-2-2b", 2614341888},      {"gemma-2-9b", 9241705984},
    {"gemma-2-27b", 27227128320},    {"gemma-3-270m", 268098176},
    {"gemma-3-1b", 999885952},       {"gemma-3-4b", 3880263168},
    {"gemma-3-12b", 11766034176},    {"gemma-3-27b", 27009346304},
    {"olmo-2-1b", 1484916736},       {"olmo-2-7b", 7298617344},
    {"olmo-2-13b", 13716198400},     {"olmo-2-32b", 32234279936},
    {"stablelm-3b", 2795443200},     {"stablelm-2-1.6b", 1644515328},
    {"phi-3-mini", 3821079552},      {"phi-3-medium", 13960238080},
    {"phi-4", 14659507200},          {"gpt2", 124439808},
    {"gpt2-medium", 354823168},      {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},         {"pythia-70m", 70426624},
    {"pythia-160m", 162322944},      {"pythia-410m", 405334016},
    {"pythia-1b", 1011781632},       {"pythia-1.4b", 1414647808},
    {"pythia-2.8b", 2775208960},     {"pythia-6.9b", 6857302016},
    {"pythia-12b", 11846072320},
};

TEST(KnownModelsTest, HaveTheParametersThatTransformersCounts) {
  EXPECT_EQ(std::size(kCounted), known_models().size());
  for (const Counted& model : kCounted) {
    const ModelConfig* config = find_model(model.name);
    ASSERT_NE(config, nullptr) << model.name;
    EXPECT_EQ(parameter_formula(*config), model.parameters) << model.name;
    RunSpec run{.model = *config, .shape = {.batch = 1, .context = 16}};
    EXPECT_EQ(parameter_count(forward_program(run)), model.parameters) << model.name;
  }
}

TEST(KnownModelsTest, AreFoundInAnyCase) {
  EXPECT_EQ(preset("Llama-3.1-8B").name, "llama-3.1-8b");
  EXPECT_THROW(preset("llama-3.1-9b"), Error);
}

// Facts about one folder are asked for in many places.
TEST(ModelFolderTest, IsReadOnceUntilItChanges) {
  const TempFolder folder;
  std::filesystem::copy_file(testing::family_fixture("llama3", ".json"), folder / "config.json");
  const std::shared_ptr<const ReadModel> first = known_model_at(folder.path());
  EXPECT_EQ(first->config.source, folder.path().string());
  EXPECT_EQ(known_model_at(folder.path()), first);
  std::filesystem::remove(folder / "config.json");
  std::filesystem::copy_file(testing::family_fixture("gemma", ".json"), folder / "config.json");
  std::filesystem::last_write_time(
      folder / "config.json",
      std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(known_model_at(folder.path())->family, "gemma");
  std::filesystem::remove(folder / "config.json");
  EXPECT_THROW(known_model_at(folder.path()), Error);
}

}  // namespace
}  // namespace tracestep
