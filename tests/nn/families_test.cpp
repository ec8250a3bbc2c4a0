// Published config.json files: both spellings of transformers, the errors of what is no such file,
// and ten thousand damaged ones.
#include "nn/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <random>

#include "base/error.h"
#include "spec/check_run.h"
#include "spec/run_grid.h"
#include "spec/step_program.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLlama = R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 24,
  "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2)";

// A small Llama with these fields at its end.
ReadModel llama(const std::string& more) {
  const std::string text = kLlama + (more.empty() ? "" : ", " + more) + "}";
  return model_of_json(Json::parse(text, "config.json"), "config.json");
}

std::string error_of(const std::string& text) {
  try {
    require_no_doubts(model_of_json(Json::parse(text, "config.json"), "config.json"),
                      "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput) << error.what();
    return error.what();
  }
  return "";
}

TEST(FamiliesTest, BothSpellingsOfOneModelAreTheSame) {
  const ModelConfig older = llama(R"("rope_theta": 5e5, "torch_dtype": "bfloat16", "rope_scaling":
    {"type": "linear", "factor": 2.0})")
                                .config;
  const ModelConfig newer = llama(R"("dtype": "bfloat16", "rope_parameters":
    {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5})")
                                .config;
  EXPECT_EQ(older, newer);
  EXPECT_EQ(older.rope_theta, 5e5);
  EXPECT_EQ(name_of(older.rope_scaling), "linear:2");
}

TEST(FamiliesTest, OfAMultimodalModelItsTextIsRead) {
  const std::string text = std::string(R"({"model_type": "llava", "vision_config": {"x": 1},
    "text_config": )") + kLlama +
                           "}}";
  const ReadModel found = model_of_json(Json::parse(text, "c"), "c");
  EXPECT_EQ(found.config, llama("").config);
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("only its text part")));
}

TEST(FamiliesTest, TheTextOfAQwenWithPicturesIsAQwen2) {
  const std::string fields = R"("vocab_size": 48, "hidden_size": 24, "intermediate_size": 40,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2)";
  const std::string whole = R"("vision_config": {"depth": 1}, "image_token_id": 7,
    "video_token_id": 8, "vision_start_token_id": 9, "vision_end_token_id": 10)";
  const auto read = [](const std::string& text) {
    return model_of_json(Json::parse(text, "c"), "c");
  };
  for (const std::string type : {"qwen2_vl", "qwen2_5_vl"}) {
    const ReadModel flat = read(R"({"model_type": ")" + type + R"(", )" + fields + ", " + whole +
                                R"(, "vision_token_id": 11, "tie_word_embeddings": true,
        "rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]}})");
    const ReadModel nested =
        read(R"({"model_type": ")" + type + R"(", )" + whole +
             R"(, "tie_word_embeddings": true, "text_config": {"model_type": ")" + type +
             "_text\", " + fields + R"(, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [2, 1, 0]}}})");
    EXPECT_EQ(flat.config, nested.config);
    EXPECT_TRUE(flat.config.is_tied && flat.config.qkv_bias);
    EXPECT_EQ(flat.config.rope_scaling, RopeScaling());
    for (const ReadModel* model : {&flat, &nested}) {
      EXPECT_EQ(doubts_of(*model), std::vector<std::string>());
      EXPECT_THAT(model->notes, ElementsAre(HasSubstr("only its text part")));
      EXPECT_TRUE(model->is_part);
      EXPECT_EQ(model->family, "qwen2");
    }
    const ReadModel alone = read(R"({"model_type": "qwen2", "rms_norm_eps": 1e-5, )" + fields +
                                 R"(, "tie_word_embeddings": true, "rope_theta": 1000000.0})");
    EXPECT_EQ(alone.config, flat.config);
  }
}

TEST(FamiliesTest, LayersWithoutRotationAreAPattern) {
  const auto pattern = [](const std::string& more) {
    return model_of_json(
               Json::parse(R"({"model_type": "smollm3", "num_hidden_layers": 8)" + more + "}", "c"),
               "c")
        .config;
  };
  EXPECT_EQ(pattern("").rope_layers, "rrrn");
  EXPECT_EQ(pattern(R"(, "no_rope_layer_interval": 3)").rope_layers, "rrn");
  EXPECT_EQ(pattern(R"(, "no_rope_layers": [0, 1, 0, 1, 0, 1, 0, 1, 1, 1])").rope_layers, "nr");
  EXPECT_EQ(pattern("").window, 0);
  const ModelConfig windowed = pattern(R"(, "use_sliding_window": true, "sliding_window": 5)");
  EXPECT_EQ(windowed.window, 5);
  EXPECT_EQ(windowed.window_layers, "fffw");
  EXPECT_TRUE(windowed.rotates(4));
  EXPECT_FALSE(windowed.rotates(7));
}

TEST(FamiliesTest, WhatIsLeftOutOrNotRunIsSaid) {
  EXPECT_THAT(llama(R"("attention_dropout": 0.1)").notes, ElementsAre(HasSubstr("dropped")));
  EXPECT_THAT(llama(R"("auto_map": {"AutoModel": "modeling_x.Model"})").notes,
              ElementsAre(HasSubstr("is not run")));
}

TEST(FamiliesTest, TheWindowOfALayerIsThatOfItsType) {
  const auto read = [](const std::string& types) {
    std::string text = kLlama;
    text.replace(text.find("llama"), 5, "mistral");
    return model_of_json(
               Json::parse(text + R"(, "sliding_window": 5, "layer_types": )" + types + "}", "c"),
               "c")
        .config;
  };
  const ModelConfig mixed = read(R"(["full_attention", "sliding_attention", "full_attention"])");
  EXPECT_EQ(mixed.window_layers, "fw");
  EXPECT_EQ(mixed.window_of(1), 5);
  EXPECT_EQ(mixed.window_of(2), 0);
  EXPECT_EQ(read(R"(["full_attention", "full_attention", "full_attention"])").window, 0);
}

TEST(FamiliesTest, LayersThatAreListedAreThePatternThatANameHas) {
  std::string text = R"({"model_type": "gemma2", "sliding_window": 4096, "layer_types": [)";
  for (int i = 0; i < 13; ++i) {
    text += std::string(i > 0 ? "," : "") + R"("sliding_attention", "full_attention")";
  }
  ModelConfig listed = model_of_json(Json::parse(text + "]}", "c"), "c").config;
  listed.name = "gemma-2-2b";
  EXPECT_EQ(listed, *find_model("gemma-2-2b"));
  EXPECT_EQ(normalised({.layers = 1, .window = 3, .window_layers = "fw"}).window, 0);
  EXPECT_EQ(normalised({.layers = 4, .window = 3, .window_layers = "fwf"}).window_layers, "fwf");
  ModelConfig same{.rope_theta_windowed = ModelConfig().rope_theta, .window = 3};
  EXPECT_EQ(normalised(same).rope_theta_windowed, 0.0);
  same.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 2.0};
  EXPECT_EQ(normalised(same).rope_theta_windowed, same.rope_theta) << "these are not scaled";
}

// As in Gemma's first files, OLMo 3's (no rope_parameters) and StarCoder2's.
TEST(FamiliesTest, OlderFilesOfAFamilyMeanWhatTheirCodeDoes) {
  const auto read = [](const std::string& fields) {
    return model_of_json(Json::parse("{" + fields + "}", "c"), "c");
  };
  const ModelConfig gemma =
      read(R"("model_type": "gemma", "hidden_act": "gelu", "hidden_activation": null)").config;
  EXPECT_EQ(gemma.activation, Activation::kGeluTanh);
  EXPECT_EQ(gemma.head_width(), 256);
  EXPECT_EQ(gemma.norm_offset, 1.0);
  const ModelConfig olmo = read(R"("model_type": "olmo3", "rope_theta": 500000, "rope_scaling":
    {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192})")
                               .config;
  EXPECT_EQ(olmo.rope_theta_windowed, 500000.0);
  EXPECT_EQ(olmo.window_of(2), 4096);
  EXPECT_EQ(olmo.window_of(3), 0);
  const ReadModel coder = read(R"("model_type": "starcoder2", "use_bias": false, "mlp_type":
    "default", "norm_type": "layer_norm", "residual_dropout": 0.1)");
  EXPECT_FALSE(coder.config.ffn_bias);
  EXPECT_TRUE(coder.config.norm_bias);
  EXPECT_TRUE(coder.unknown.empty());
  EXPECT_THAT(coder.notes, ElementsAre(HasSubstr("residual_dropout is left out")));
  EXPECT_THAT(error_of(R"({"model_type": "starcoder2", "mlp_type": "gated"})"),
              HasSubstr("\"mlp_type\" is \"gated\"; default is expected"));
}

TEST(FamiliesTest, ANullSaysThatThereIsNoneAndAMissingFieldIsTheUsualOne) {
  const auto read = [](const std::string& type, const std::string& more) {
    const std::string text = R"({"num_hidden_layers": 3, "model_type": ")" + type + "\"" + more;
    return model_of_json(Json::parse(text + "}", "c"), "c").config;
  };
  EXPECT_EQ(read("mistral", "").key_heads(), 8);
  EXPECT_EQ(read("mistral", R"(, "num_key_value_heads": null)").key_heads(), 32);
  EXPECT_EQ(read("stablelm", "").rope_share, 0.25);
  const std::string windows = R"(, "use_sliding_window": true, "max_window_layers": 1)";
  EXPECT_EQ(read("qwen2", windows).window, 4096);
  EXPECT_EQ(read("qwen2", windows + R"(, "sliding_window": null)").window, 0);
  EXPECT_EQ(read("llama", R"(, "sliding_window": null)").window, 0) << "no field of this family";
}

TEST(FamiliesTest, AnErrorNamesTheFieldAndWhatItWouldBe) {
  const auto with = [](const std::string& more) { return kLlama + (", " + more) + "}"; };
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "no object"},
      {"{}", "it has no \"model_type\""},
      {R"({"model_type": 3})", "it has no \"model_type\""},
      {R"({"model_type": "lama"})", "models of the type \"lama\" are not known; known are llama"},
      {R"({"model_type": "bert"})", "known are llama, mistral"},
      {with(R"("num_experts": 8)"), "unknown fields, which may change the model: num_experts"},
      {with(R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0})"),
       "\"rope_type\" is \"dynamic\"; default, linear, llama3, yarn or longrope is expected"},
      {with(R"("rope_scaling": {"rope_type": "linear", "factor": 0.5})"), "at least 1"},
      {with(R"("rope_scaling": {"rope_type": "linear"})"), "\"factor\" is missing"},
      {with(R"("rope_scaling": {"type": "longrope", "long_factor": [1]})"),
       "\"short_factor\" is missing; a list of 3 factors is expected"},
      {with(R"("rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1],
                "long_factor": [1, 0, 1]})"),
       "\"long_factor\" is [1,0,1]; a list of 3 factors is expected"},
      {with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                "high_freq_factor": 1})"),
       "high more than low"},
      {with(R"("rope_parameters": {"full_attention": {}, "sliding_attention":
                {"rope_theta": 9, "partial_rotary_factor": 0.5}})"),
       "another part of a head"},
      {with(R"("rms_norm_eps": -1)"), "norm_eps: -1 is negative"},
      {R"({"model_type": "qwen2", "num_hidden_layers": 1000000000000})", "a size of a model"},
      {with(R"("pruned_heads": {"0": [1]})"), "\"pruned_heads\" is"},
      {R"({"model_type": "gpt2", "add_cross_attention": true})", "false is expected"},
      {R"({"model_type": "qwen2", "max_window_layers": 2.5})", "a whole number is expected"},
      {R"({"model_type": "gemma2", "hidden_act": "gelu"})", "that of hidden_activation"},
      {R"({"model_type": "gemma2", "attn_logit_softcapping": -5})", "score_cap: -5 is negative"},
      {R"({"model_type": "gemma2", "sliding_window_size": 5})", "that of sliding_window"},
      {R"({"model_type": "x", "tie_word_embeddings": true, "text_config": )" +
           with(R"("tie_word_embeddings": false)") + "}",
       "\"tie_word_embeddings\" is true; false is expected"},
      {R"({"model_type": "x", "quantization_config": {"bits": 4}, "text_config": )" +
           with(R"("x": null)") + "}",
       "its weights are quantized (4 bits); read are bf16, f16, f32"},
      {R"({"model_type": "smollm3", "num_hidden_layers": 2, "no_rope_layers": [1]})",
       "1 or 0 for each layer"},
      {R"({"model_type": "smollm3", "num_hidden_layers": 2, "no_rope_layers": [1, 2]})",
       "1 or 0 for each layer"},
      {R"({"model_type": "qwen2_vl", "rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}})",
       "adds up to 64 pairs"},
      {R"({"model_type": "qwen2", "rope_scaling": {"type": "mrope"}})", "\"type\" is \"mrope\""},
      {with(R"("quantization_config": {"quant_method": "gptq", "bits": 4})"),
       "its weights are quantized (gptq, 4 bits)"},
      {with(R"("quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true})"),
       "its weights are quantized (bitsandbytes, 4 bits)"},
      {with(R"("quantization": {"group_size": 64, "bits": 8})"), "quantized (8 bits)"},
      {with(R"("rope_scaling": "linear")"), "an object is expected"},
      {with(R"("rope_parameters": [])"), "an object is expected"},
      {with(R"("hidden_act": "mish")"), "\"hidden_act\" is \"mish\"; silu, gelu"},
      {with(R"("head_dim": 7)"), "rotation works on pairs"},
      {with(R"("head_dim": -8)"), "\"head_dim\" is -8; a size of a model is expected"},
      {with(R"("head_dim": 8.5)"), "\"head_dim\" is 8.5; a whole number is expected"},
      {with(R"("tie_word_embeddings": "yes")"), "true or false is expected"},
      {with(R"("rope_theta": "many")"), "a number is expected"},
      {R"({"model_type": "llama", "num_attention_heads": 12, "num_key_value_heads": 5})",
       "do not divide"},
      {R"({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 32})",
       "32 heads do not divide"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})", "false is expected"},
      {R"({"model_type": "gpt2", "hidden_size": 24})", "unknown fields"},
      {R"({"model_type": "phi3", "attention_bias": true})", "false is expected"},
      {R"({"model_type": "phi3", "interpolate_factor": 2})",
       "\"interpolate_factor\" is 2; 1 is expected"},
      {R"({"model_type": "stablelm", "use_parallel_residual": true})", "false is expected"},
      {R"({"model_type": "stablelm", "qk_layernorm": true})", "false is expected"},
      {R"({"model_type": "gemma2", "query_pre_attn_scalar": 0})", "a positive number is expected"},
      {R"({"model_type": "mistral", "layer_types": ["full_attention"]})", "for each layer"}};
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(error_of(text), AllOf(HasSubstr("[config.json"), HasSubstr(expected))) << text;
  }
}

TEST(FamiliesTest, AModelIsANameAFolderOrAFile) {
  TempFolder folder;
  const auto put = [&](const std::filesystem::path& file) {
    return folder.write(file.string(), std::string(kLlama) + "}").string();
  };
  put("mine/config.json");
  EXPECT_EQ(model_called("model", (folder.path() / "mine").string()).name, "mine");
  EXPECT_EQ(model_called("model", put("mine/config.json")).name, "mine");
  EXPECT_EQ(model_called("model", put("other.json")).name, "other");
  put("Llama-3.1-8B/config.json");
  EXPECT_EQ(model_called("model", (folder.path() / "Llama-3.1-8B").string()).name, "custom")
      << "it is not the one of that name";
  EXPECT_EQ(model_called("model", "LLAMA-3.1-8b").name, "llama-3.1-8b");
  const auto error = [&](const std::string& text) -> std::string {
    try {
      model_called("--model", text);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error("llama-3.1-9b"), HasSubstr("did you mean llama-3.1-8b?"));
  EXPECT_THAT(error("./nothing"), HasSubstr("there is no such file or folder"));
  EXPECT_THAT(error(folder.path().string()), HasSubstr("config.json"));
}

TEST(FamiliesTest, ATypeThatIsNotKnownIsNotTakenForItsNearest) {
  for (const std::string type :
       {"gemma3n_text", "gptj", "qwen", "mixtral", "olmoe", "phi", "llama4_text"}) {
    EXPECT_THAT(error_of(R"({"model_type": ")" + type + "\"}"),
                AllOf(HasSubstr("known are llama, mistral"), Not(HasSubstr("did you mean"))));
  }
  for (const std::string name :
       {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", "phi-2", "olmo-1b"}) {
    try {
      model_called("--model", name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("which is not known; known are llama"),
                                      Not(HasSubstr("did you mean"))));
    }
  }
}

TEST(FamiliesTest, AModelOfAKnownFamilyWithoutANameHereNeedsItsFolder) {
  for (const std::string name :
       {"google/gemma-2b", "HuggingFaceTB/SmolLM3-3B", "stabilityai/stablelm-2-12b"}) {
    try {
      model_called("--model", name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr("are not known by name"));
      EXPECT_THAT(error.hint(), HasSubstr("its folder"));
    }
  }
}

TEST(FamiliesTest, AModelIsKnownByTheNameThatItIsStoredUnder) {
  const std::pair<const char*, const char*> names[] = {
      {"meta-llama/Llama-3.1-8B", "llama-3.1-8b"},
      {"meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"},
      {"meta-llama/Llama-2-7b-hf", "llama-2-7b"},
      {"Llama-3.2-1B-Instruct", "llama-3.2-1b"},
      {"Qwen/Qwen2.5-7B", "qwen2.5-7b"},
      {"qwen/qwen2.5-7b-instruct", "qwen2.5-7b"},
      {"Qwen/Qwen3-0.6B-Base", "qwen3-0.6b"},
      {"openai-community/gpt2", "gpt2"},
      {"google/gemma-2-2b-it", "gemma-2-2b"},
      {"google/gemma-3-4b-pt", "gemma-3-4b"},
      {"mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"},
      {"HuggingFaceTB/SmolLM2-135M", "smollm2-135m"},
      {"EleutherAI/pythia-160m-deduped", "pythia-160m"},
      {"microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"},
      {"stabilityai/stablelm-2-1_6b", "stablelm-2-1.6b"},
      {"allenai/OLMo-2-1124-7B-Instruct", "olmo-2-7b"}};
  for (const auto& [stored, known] : names) {
    EXPECT_EQ(model_called("model", stored), *find_model(known)) << stored;
  }
  for (const char* other : {"./gpt2", "~/gpt2", "a/b/gpt2", "microsoft/Phi-3-mini-128k-instruct",
                            "mistralai/Mistral-7B-v0.2"}) {
    EXPECT_EQ(stored_as(other), nullptr) << other;
  }
}

TEST(FamiliesTest, AFolderOfThatPathIsTheModelThatIsMeant) {
  TempFolder folder;
  folder.write("openai-community/gpt2/config.json", std::string(kLlama) + "}");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_EQ(model_called("model", "openai-community/gpt2").vocab, 48);
  std::filesystem::current_path(before);
}

TEST(FamiliesTest, WhatTransformersAndToolsWriteIntoEveryFileIsNoFieldOfTheModel) {
  const std::string harmless = R"("max_length": 20, "min_length": 0, "do_sample": true,
    "early_stopping": true, "num_beams": 4, "num_beam_groups": 1, "diversity_penalty": 0.0,
    "temperature": 0.7, "top_k": 50, "top_p": 0.9, "typical_p": 1.0, "repetition_penalty": 1.1,
    "length_penalty": 1.0, "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 0,
    "num_return_sequences": 1, "output_scores": true, "return_dict_in_generate": true,
    "forced_eos_token_id": 2, "remove_invalid_values": true, "num_labels": 2, "max_new_tokens": 9,
    "use_flash_attn": true, "model_max_length": 4096, "neftune_noise_alpha": 5,
    "unsloth_tiled_mlp": true, "num_logits_to_keep": 0, "loss_type": "ForCausalLM",
    "output_past": true, "n_special": 0, "predict_special_tokens": true,
    "use_sliding_window": false, "max_window_layers": 28, "sliding_window": 4096,
    "layer_types": ["full_attention", "full_attention", "full_attention"], "use_mrope": false,
    "use_qk_norm": false, "some_switch": false)";
  const ReadModel read = llama(harmless);
  EXPECT_THAT(read.unknown, ::testing::IsEmpty());
  EXPECT_EQ(read.config, llama("").config);
}

TEST(FamiliesTest, WhatMayChangeTheModelIsListedAndNotTakenForNothing) {
  const ReadModel read = llama(R"("is_causal": false, "use_rope": false, "residual_multiplier": 0.2,
    "n_special": 4, "layer_types": ["full_attention", "full_attention", "linear_attention"],
    "sliding_window": 512, "num_experts": 8, "rope_parameters": {"beta": 3})");
  EXPECT_THAT(read.unknown, ::testing::UnorderedElementsAre(
                                "is_causal", "use_rope", "residual_multiplier", "n_special",
                                "layer_types", "sliding_window", "num_experts", "beta"));
  EXPECT_THAT(doubts_of(read), ElementsAre(HasSubstr("not known: ")));
  EXPECT_THAT(doubts_of(llama("")), ::testing::IsEmpty());
}

TEST(FamiliesTest, LongropeHasItsListsAndTheMagnitudeOfItsStretch) {
  const auto phi3 = [](const std::string& more) {
    const std::string text = R"({"model_type": "phi3", "hidden_size": 32, "num_hidden_layers": 1,
      "num_attention_heads": 4, "intermediate_size": 40, "max_position_embeddings": 131072,
      "original_max_position_embeddings": 4096, "rope_scaling": {"short_factor": [1, 1, 1, 1],
      "long_factor": [1, 2, 3, 4.5], "type": )";
    return model_of_json(Json::parse(text + more + "}}", "c"), "c");
  };
  for (const std::string type : {"\"longrope\"", "\"su\"", "\"yarn\""}) {
    const ReadModel read = phi3(type);
    const RopeScaling& s = read.config.rope_scaling;
    EXPECT_EQ(s.kind, RopeScalingKind::kLongRope);
    EXPECT_THAT(s.far, ElementsAre(1, 2, 3, 4.5));
    EXPECT_EQ(s.original, 4096);
    EXPECT_NEAR(s.magnitude, std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-12);
    EXPECT_EQ(read.positions, 131072);
  }
  EXPECT_EQ(phi3(R"("longrope", "attention_factor": 1.5)").config.rope_scaling.magnitude, 1.5);
  EXPECT_NEAR(phi3(R"("longrope", "factor": 4)").config.rope_scaling.magnitude,
              std::sqrt(1 + std::log(4.0) / std::log(4096.0)), 1e-12);
}

TEST(FamiliesTest, WhatPhi4MiniSaysBesidesIsKnown) {
  const char* text = R"({"model_type": "phi3", "full_attn_mod": 1, "interpolate_factor": 1,
    "lm_head_bias": false, "mlp_bias": false})";
  EXPECT_THAT(doubts_of(model_of_json(Json::parse(text, "c"), "c")), ::testing::IsEmpty());
}

// --- damage -------------------------------------------------------------------------------------

class Damage {
 public:
  explicit Damage(std::uint32_t seed) : random_(seed) {}

  // A copy in which one to three members, at any depth, are changed, removed or added.
  Json apply(Json json) {
    for (std::size_t i = 1 + below(3); i > 0; --i) json = changed(json);
    return json;
  }
  std::size_t below(std::size_t end) { return random_() % end; }

 private:
  Json changed(const Json& json) {
    if (!json.is_object() || json.members().empty()) return any();
    Json::Object members = json.members();
    const std::size_t at = below(members.size());
    Json& value = members[at].second;
    if (value.is_object() && below(2) == 0) {
      value = changed(value);
      return Json(std::move(members));
    }
    switch (below(6)) {
      case 0: members.erase(members.begin() + static_cast<std::ptrdiff_t>(at)); break;
      case 1: members.emplace_back("field_" + std::to_string(below(1000)), any()); break;
      case 2: value = members[below(members.size())].second; break;
      case 3: value = near(value); break;
      default: value = any();
    }
    return Json(std::move(members));
  }
  Json near(const Json& value) {
    if (value.is_int()) return value.as_int() + static_cast<std::int64_t>(below(7)) - 3;
    if (value.is_bool()) return !value.as_bool();
    if (value.is_number()) return value.as_double() * (static_cast<double>(below(5)) - 1.0);
    return any();
  }
  Json any() {
    switch (below(12)) {
      case 0: return {};
      case 1: return true;
      case 2: return -1;
      case 3: return 0;
      case 4: return std::numeric_limits<std::int64_t>::max();
      case 5: return 1e300;
      case 6: return -0.5;
      case 7: return "default";
      case 8: return std::string(200, 'x');
      case 9: return Json::array();
      case 10: return Json::Array{1, "full_attention", Json::object()};
      default: return static_cast<std::int64_t>(below(64));
    }
  }

  std::mt19937 random_;
};

// A model that is accepted can be built, or is refused by its sizes with an error as clear.
void expect_usable(const ModelConfig& model) {
  const RunSpec run{.model = model, .shape = {.batch = 1, .context = 2}};
  check_run(run);
  if (model.layers > 4 || parameter_formula(model) > 1 << 20) return;
  EXPECT_EQ(parameter_count(forward_program(run)), parameter_formula(model));
}

TEST(FamiliesTest, DamagedFilesAreModelsOrOneClearError) {
  std::vector<Json> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::source_folder() / "tests/golden/families")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream in(entry.path());
    const std::string text(std::istreambuf_iterator<char>(in), {});
    files.push_back(Json::parse(text, entry.path().string()));
  }
  std::ranges::sort(files, {}, [](const Json& file) { return file.dump(); });
  ASSERT_GE(files.size(), 23u);
  Damage damage(20261124);
  int accepted = 0;
  for (int i = 0; i < 10000; ++i) {
    const Json json = damage.apply(files[damage.below(files.size())]);
    try {
      expect_usable(model_of_json(json, "config.json").config);
      ++accepted;
    } catch (const Error& error) {
      const bool is_of_user =
          error.code() == ErrorCode::kInput || error.code() == ErrorCode::kUsage;
      EXPECT_TRUE(is_of_user && !error.message().empty() && error.message().size() < 600)
          << error.what() << " of " << json.dump();
    }
  }
  EXPECT_GT(accepted, 1000) << "else the damage shows nothing of what is accepted";
  EXPECT_LT(accepted, 9000);
}

}  // namespace
}  // namespace tracestep
