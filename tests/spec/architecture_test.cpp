// Fields that tell architectures apart: keys, labels, flags and files of runs must never take two
// models for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "ir/print.h"
#include "nn/families.h"
#include "ops/functions.h"
#include "spec/run_flags.h"
#include "spec/run_grid.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Scales 32 pairs: the original context stands first, the magnitude behind it.
constexpr const char* kLongrope =
    "longrope:8:1.25:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:1:1.5:"
    "1:1.5:1:1.5:1:1.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:2.5:2:"
    "2.5:2:2.5:2:2.5:2:2.5";

// Another value of every field of the architecture, by the text of its flag.
const std::pair<const char*, const char*> kOthers[] = {{"kv_heads", "2"},
                                                       {"head_width", "8"},
                                                       {"norm_kind", "layer"},
                                                       {"norm_eps", "1e-06"},
                                                       {"norm_place", "both"},
                                                       {"norm_bias", "on"},
                                                       {"norm_offset", "1"},
                                                       {"qk_norm", "head"},
                                                       {"activation", "gelu"},
                                                       {"gated", "off"},
                                                       {"qkv_bias", "on"},
                                                       {"output_bias", "on"},
                                                       {"ffn_bias", "on"},
                                                       {"tied_head", "on"},
                                                       {"parallel_residual", "on"},
                                                       {"positions", "learned"},
                                                       {"max_positions", "64"},
                                                       {"rope_theta", "500000"},
                                                       {"rope_theta_windowed", "5000"},
                                                       {"rope_share", "0.5"},
                                                       {"rope_scaling", "llama3:8:1:4:8192"},
                                                       {"rope_scaling", kLongrope},
                                                       {"embedding_scale", "33.94112549695428"},
                                                       {"score_scale", "0.0625"},
                                                       {"score_cap", "50"},
                                                       {"logit_cap", "30"},
                                                       {"window", "4"},
                                                       {"window_layers", "wf"},
                                                       {"rope_layers", "rn"}};

// Sets the other fields that a field needs to mean something.
void prepare(std::string_view field, RunSpec& run) {
  ModelConfig& m = run.model;
  if (field == "norm_bias") m.norm = NormKind::kLayer;
  if (field == "positions" || field == "max_positions") m.max_positions = 32;
  if (field == "max_positions") m.positions = Positions::kLearned;
  if (field == "rope_theta_windowed" || field == "window_layers") m.window = 4;
}

void set(RunSpec& run, std::string_view field, const std::string& text) {
  field_named(field).parse("test", text)(run);
}

TEST(ArchitectureTest, EveryFieldChangesTheProgramTheLabelAndTheKeyAndComesBack) {
  ops::register_all();
  std::set<std::string_view> fields;
  for (const auto& [name, text] : kOthers) {
    fields.insert(name);
    RunSpec usual{.model = preset("tiny"), .shape = {2, 16}};
    prepare(name, usual);
    RunSpec other = usual;
    set(other, name, text);
    EXPECT_NE(print(forward_program(other)), print(forward_program(usual))) << name;
    EXPECT_NE(label_of(other), label_of(usual)) << name;
    EXPECT_NE(canonical_text(key_of(other)), canonical_text(key_of(usual))) << name;
    EXPECT_EQ(run_of_key(key_of(other)).model, other.model) << name;
    EXPECT_EQ(with_architecture(usual.model, architecture_of(other.model)), other.model) << name;
    EXPECT_EQ(text_of(field_named(name), other), text);
  }
  for (const RunField& field : run_fields()) {
    EXPECT_EQ(fields.contains(field.name), is_of_architecture(field)) << field.name;
  }
}

TEST(ArchitectureTest, EveryKnownModelHasALabelAndAKeyOfItsOwnThatBringItBack) {
  std::set<std::string> labels, keys;
  for (const KnownModel& known : known_models()) {
    const RunSpec run{.model = known.config, .shape = {1, 16}};
    EXPECT_TRUE(labels.insert(label_of(run)).second) << known.config.name;
    EXPECT_TRUE(label_of(run).starts_with(known.config.name + " context 16")) << label_of(run);
    EXPECT_TRUE(keys.insert(canonical_text(key_of(run))).second) << known.config.name;
    EXPECT_EQ(run_of_key(key_of(run)).model, known.config);
    EXPECT_EQ(normalised(known.config), known.config);
  }
}

TEST(ArchitectureTest, AKeyThatIsOlderThanTheseFieldsIsOfTheReferenceTransformer) {
  const RunSpec run{.model = preset("small")};
  Json::Object older = key_of(run).members();
  std::erase_if(older, [](const auto& member) {
    const RunField* field = find_field(member.first);
    return field != nullptr && is_of_architecture(*field);
  });
  EXPECT_LT(older.size(), key_of(run).members().size());
  EXPECT_EQ(canonical_text(Json(older)), canonical_text(key_of(run)));
}

RunGrid grid_of(std::initializer_list<std::pair<const char*, const char*>> values) {
  RunGrid out({.model = preset("small"), .shape = {2, 16}});
  for (const auto& [name, text] : values) out.give(field_named(name), name, {text});
  return out;
}

TEST(ArchitectureTest, APresetWithAnotherArchitectureIsNotCalledByItsName) {
  const RunSpec run = grid_of({{"size", "tiny"}, {"kv_heads", "2"}}).run();
  EXPECT_EQ(run.model.name, "custom");
  EXPECT_THAT(label_of(run), HasSubstr("custom d_model 256 d_ff 1024 layers 4 heads 4 context 16"));
  EXPECT_THAT(label_of(run), HasSubstr("kv_heads 2"));
  EXPECT_EQ(default_text(field_named("size"), run), "tiny") << "what a process of its own is told";
  EXPECT_EQ(grid_of({{"size", "tiny"}, {"kv_heads", "4"}}).run().model.name, "tiny")
      << "as many as heads: the same model";
  EXPECT_EQ(grid_of({{"size", "tiny"}, {"vocab", "99"}}).run().model.name, "tiny");
}

TEST(ArchitectureTest, CommandsOfAModelSayWhatItIs) {
  const auto flags = [](const RunSpec& run) {
    const Json key = key_of(run);
    return flags_of({&key, 1}, {});
  };
  EXPECT_THAT(flags({.model = preset("llama-3.2-1b"), .shape = {1, 16}}),
              ElementsAre(HasSubstr("--model llama-3.2-1b --context 16")));
  EXPECT_THAT(flags(grid_of({{"size", "tiny"}, {"kv_heads", "2"}}).run()),
              ElementsAre(::testing::AllOf(HasSubstr("--d-model 256"), HasSubstr("--kv-heads 2"),
                                           ::testing::Not(HasSubstr("--size")))));
}

TEST(ArchitectureTest, WhatHoldsForTheReferenceAloneIsRefusedForOthers) {
  require_reference(preset("small"), "here", "it is");
  try {
    require_reference(preset("qwen2.5-0.5b"), "here", "the formula is");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("[here] the formula is of the reference Transformer, from which "
                          "qwen2.5-0.5b differs in kv_heads, qkv_bias, tied_head"));
  }
}

}  // namespace
}  // namespace tracestep
