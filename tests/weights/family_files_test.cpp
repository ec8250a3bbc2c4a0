// Published models read and written: every tensor comes back as it was, and a folder that does not
// fit is refused in one message, with nothing written.
#include "weights/family_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/json.h"
#include "ops/functions.h"
#include "support/family_folder.h"
#include "support/host_values.h"
#include "support/temp_folder.h"
#include "weights/family_export.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TensorsToSave all_of(const SavedTensors& from) {
  TensorsToSave out{.types = {},
                    .get = [from](const std::string& name) { return from.read(name); }};
  for (const std::string& name : from.names()) out.types[name] = from.type(name);
  return out;
}

// The tensors of a folder under the names that its files have.
std::map<std::string, HostTensor> in_files(const fs::path& folder) {
  std::map<std::string, HostTensor> out;
  for (const fs::path& path : family_weight_files(folder)) {
    const SafetensorsFile file(path);
    for (const std::string& name : file.names()) out[name] = file.read(name);
  }
  return out;
}

void expect_same(const std::map<std::string, HostTensor>& a,
                 const std::map<std::string, HostTensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_EQ(value.dtype, b.at(name).dtype) << name;
    EXPECT_EQ(value.shape, b.at(name).shape) << name;
    EXPECT_TRUE(value.bytes == b.at(name).bytes) << name;
  }
}

class FamilyFilesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ops::register_all();
    testing::write_family_fixture(GetParam(), given());
  }
  fs::path given() const { return folder_ / "given"; }

  TempFolder folder_;
};

TEST_P(FamilyFilesTest, WhatIsReadAndWrittenAgainHasTheSameBytes) {
  const SavedTensors read = open_family_weights(given());
  const FamilyExport what{.model = config_of(read, {}), .origin = given()};
  write_family_folder(folder_ / "out", what, all_of(read));
  expect_same(in_files(given()), in_files(folder_ / "out"));
  ReadModel origin = read_model(given()), written = read_model(folder_ / "out");
  if (origin.is_part) {  // its text alone
    written.config.name = origin.config.name;
    written.config.source = origin.config.source;
    EXPECT_EQ(written.config, origin.config);
    EXPECT_EQ(written.family, origin.family);
    EXPECT_FALSE(written.is_part);
  } else {
    EXPECT_EQ(content_of(given() / "config.json"), content_of(folder_ / "out/config.json"));
  }
}

TEST_P(FamilyFilesTest, ShardsHoldTheSame) {
  const SavedTensors read = open_family_weights(given());
  const FamilyExport what{.model = config_of(read, {}), .origin = given(), .shard_bytes = 10'000};
  write_family_folder(folder_ / "out", what, all_of(read));
  EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors"));
  EXPECT_GT(family_weight_files(folder_ / "out").size(), 2u);
  expect_same(in_files(given()), in_files(folder_ / "out"));
  const SavedTensors again = open_family_weights(folder_ / "out");
  for (const std::string& name : read.names()) {
    EXPECT_TRUE(read.read(name).bytes == again.read(name).bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyFilesTest, ::testing::ValuesIn(testing::kFamilyFixtures),
                         [](const auto& test) { return std::string(test.param); });

// A folder of one model, to be changed.
class FamilyFolderTest : public ::testing::Test {
 protected:
  FamilyFolderTest() { ops::register_all(); }

  fs::path make(const std::string& family) const {
    fs::remove_all(folder_ / family);
    testing::write_family_fixture(family, folder_ / family);
    return folder_ / family;
  }
  // Writes the weights anew, as `change` leaves them.
  static void change(const fs::path& folder,
                     const std::function<void(std::map<std::string, HostTensor>&)>& change) {
    auto tensors = in_files(folder);
    change(tensors);
    write_safetensors(folder / kFamilyWeights, {tensors.begin(), tensors.end()});
  }
  static void rename(const fs::path& folder,
                     const std::function<std::string(const std::string&)>& new_name) {
    change(folder, [&](auto& tensors) {
      std::map<std::string, HostTensor> renamed;
      for (auto& [name, value] : tensors) renamed[new_name(name)] = std::move(value);
      tensors = std::move(renamed);
    });
  }
  // Writes the weights as shards of at most 10 kB with an index.
  fs::path make_shards() const {
    const SavedTensors read = open_family_weights(make("llama2"));
    const fs::path out = folder_ / "shards";
    fs::remove_all(out);
    write_family_folder(
        out, {.model = config_of(read, {}), .origin = folder_ / "llama2", .shard_bytes = 10'000},
        all_of(read));
    return out;
  }
  static std::string refusal_of(const fs::path& folder) {
    return message_of(ErrorCode::kInput, [&] { open_family_weights(folder); });
  }

  TempFolder folder_;
};

TEST_F(FamilyFolderTest, OneMessageListsWhatDoesNotFit) {
  const fs::path folder = make("llama2");
  change(folder, [](auto& tensors) {
    tensors.erase("model.norm.weight");
    tensors["model.layers.0.bias"] = HostTensor::zeros(DType::kF32, {3});
    tensors["lm_head.weight"] = HostTensor::zeros(DType::kF32, {24, 48});
  });
  EXPECT_THAT(refusal_of(folder),
              AllOf(HasSubstr("3 tensors do not fit its config.json"),
                    HasSubstr("lm_head.weight is f32[24,48], where [48,24] is expected; "
                              "model.layers.0.bias is unknown; model.norm.weight is missing")));
  rename(folder, [](const std::string& name) { return "x." + name; });
  EXPECT_THAT(refusal_of(folder), AllOf(HasSubstr("42 tensors"), HasSubstr("; ...")));
}

// A mask of ones in the lower triangle.
HostTensor causal_mask(std::int64_t side) {
  HostTensor out = HostTensor::zeros(DType::kBool, {1, 1, side, side});
  for (std::int64_t i = 0; i < side * side; ++i) {
    out.bytes[static_cast<std::size_t>(i)] = std::byte{i % side <= i / side};
  }
  return out;
}

HostTensor floats(std::vector<float> values) {
  return HostTensor::of<float>(DType::kF32, {std::ssize(values)}, std::span<const float>(values));
}

TEST_F(FamilyFolderTest, BuffersAndTheHeadOfATiedModelThatSayTheSameAreLeftOut) {
  const fs::path llama = make("llama3"), gpt2 = make("gpt2"), pythia = make("pythia");
  const std::string frequencies = "model.layers.0.self_attn.rotary_emb.inv_freq";
  const double theta = read_model(llama).config.rope_theta;
  std::vector<float> plain;
  for (const double pair : {0.0, 1.0, 2.0}) {
    plain.push_back(static_cast<float>(std::pow(theta, -2 * pair / 6)));
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    change(llama, [&](auto& tensors) {
      tensors[frequencies] = as_dtype(floats(plain), dtype);
      tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
    });
    EXPECT_TRUE(config_of(open_family_weights(llama), {}).is_tied);
  }
  change(gpt2, [&](auto& tensors) {
    tensors["transformer.h.0.attn.bias"] = causal_mask(32);
    tensors["transformer.h.0.attn.masked_bias"] =
        HostTensor::of<float>(DType::kF32, {}, std::span<const float>(std::vector{-1e4f}));
    tensors["lm_head.weight"] = as_dtype(tensors.at("transformer.wte.weight"), DType::kF64);
  });
  EXPECT_TRUE(config_of(open_family_weights(gpt2), {}).is_tied);
  change(pythia, [&](auto& tensors) {
    tensors["gpt_neox.layers.0.attention.bias"] = causal_mask(64);
    tensors["gpt_neox.layers.0.attention.rotary_emb.inv_freq"] = floats({1.0f, 0.01f});
  });
  EXPECT_NO_THROW(open_family_weights(pythia));
}

TEST_F(FamilyFolderTest, ABufferThatSaysSomethingElseIsRefusedByName) {
  const auto with = [&](const std::string& name, const HostTensor& value) {
    const fs::path folder = make(name.starts_with("model.") ? "llama2" : "gpt2");
    change(folder, [&](auto& tensors) { tensors[name] = value; });
    return refusal_of(folder);
  };
  const std::string frequencies = "model.layers.1.self_attn.rotary_emb.inv_freq";
  EXPECT_THAT(with(frequencies, floats({1.0f, 0.02f, 0.002f})),
              AllOf(HasSubstr(frequencies + " has the frequency 0.02 for pair 1"),
                    HasSubstr("by its config.json 0.0464159")));
  EXPECT_THAT(with(frequencies, floats({1.0f})), HasSubstr("has one frequency of rotation"));
  HostTensor mask = causal_mask(8);
  mask.bytes[3] = std::byte{1};
  EXPECT_THAT(with("transformer.h.1.attn.bias", mask), HasSubstr("by which token 0 sees token 3"));
  mask = causal_mask(8);
  mask.bytes[8 * 7] = std::byte{0};
  EXPECT_THAT(with("transformer.h.1.attn.bias", mask),
              HasSubstr("by which token 7 does not see token 0"));
  EXPECT_THAT(with("transformer.h.1.attn.bias", floats({1.0f})), HasSubstr("which is no mask"));
  EXPECT_THAT(with("transformer.h.1.attn.masked_bias", floats({-1.0f})),
              HasSubstr("is -1, which hides no score"));
}

TEST_F(FamilyFolderTest, AHeadOtherThanTheEmbeddingIsReadThoughTheConfigSaysTied) {
  const std::pair<const char*, const char*> families[] = {
      {"llama3", "lm_head.weight"},  {"qwen2", "lm_head.weight"},    {"gemma2", "lm_head.weight"},
      {"smollm2", "lm_head.weight"}, {"phi3_far", "lm_head.weight"}, {"gpt2", "lm_head.weight"}};
  for (const auto& [family, name] : families) {
    const fs::path folder = make(family);
    const Shape shape = open_family_weights(folder).type("token_embeddings.weight").shape;
    EXPECT_FALSE(has_own_head(read_model(folder)));
    const HostTensor head = testing::random_tensor({DType::kF32, shape}, name);
    change(folder, [&, name = name](auto& tensors) { tensors[name] = head; });
    EXPECT_TRUE(has_own_head(read_model(folder))) << family;
    const SavedTensors read = open_family_weights(folder);
    EXPECT_FALSE(config_of(read, {}).is_tied) << family;
    EXPECT_TRUE(read.read("lm_head.weight").bytes == head.bytes) << family;
    fs::remove_all(folder_ / "out");
    write_family_folder(folder_ / "out", {.model = config_of(read, {}), .origin = folder},
                        all_of(read));
    expect_same(in_files(folder), in_files(folder_ / "out"));
    EXPECT_FALSE(read_model(folder_ / "out").config.is_tied) << family;
  }
}

TEST_F(FamilyFolderTest, AHeadThatDiffersInItsLastNumberAloneIsReadToo) {
  const fs::path folder = make("llama3");
  change(folder, [](auto& tensors) {
    HostTensor head = tensors.at("model.embed_tokens.weight");
    head.template as<float>().back() += 1.0f;
    tensors["lm_head.weight"] = head;
  });
  EXPECT_FALSE(config_of(open_family_weights(folder), {}).is_tied);
}

TEST_F(FamilyFolderTest, WeightsInOtherFilesAreCalledWhatTheyAre) {
  const auto with = [&](const std::string& file, const std::string& content = "x") {
    const fs::path folder = make("llama2");
    fs::remove(folder / "model.safetensors");
    folder_.write("llama2/" + file, content);
    return refusal_of(folder);
  };
  EXPECT_THAT(
      with("adapter_config.json", R"({"base_model_name_or_path": "x/base"})"),
      HasSubstr("it holds an adapter (LoRA), which changes x/base, and no model; merge it"));
  EXPECT_THAT(with("adapter_config.json", "{"), HasSubstr("an adapter (LoRA), and no model"));
  EXPECT_THAT(with("pytorch_model-00001-of-00002.bin"),
              HasSubstr("its weights are PyTorch archives (pytorch_model-00001-of-00002.bin)"));
  EXPECT_THAT(with("consolidated.00.pth"), HasSubstr("names of the model's first code"));
  EXPECT_THAT(with("m.Q4_K_M.gguf"), HasSubstr("GGUF files of llama.cpp"));
  EXPECT_THAT(with("other.safetensors"), HasSubstr("safetensors under another name"));
  EXPECT_THAT(with("notes.txt"), HasSubstr("it has neither model.safetensors nor"));
}

TEST_F(FamilyFolderTest, AModelThatIsNotWhollyKnownIsNotRead) {
  const auto with = [&](const std::string& field, const Json& value) {
    const fs::path folder = make("llama2");
    Json config = Json::parse(content_of(folder / "config.json"), "config.json");
    config[field] = value;
    folder_.write("llama2/config.json", config.dump());
    return refusal_of(folder);
  };
  EXPECT_THAT(with("residual_multiplier", 0.2),
              HasSubstr("unknown fields, which may change the model: residual_multiplier"));
  Json gptq = Json::object();
  gptq["quant_method"] = "gptq";
  gptq["bits"] = 4;
  EXPECT_THAT(with("quantization_config", gptq),
              HasSubstr("its weights are quantized (gptq, 4 bits); read are bf16, f16, f32"));
}

TEST_F(FamilyFolderTest, AModelWithoutItsHeadHasNoStemBeforeItsNames) {
  const fs::path folder = make("gpt2");
  const HostTensor value = open_family_weights(folder).read("layers.1.attn.k_proj.weight");
  rename(folder, [](const std::string& name) { return name.substr(sizeof("transformer")); });
  EXPECT_TRUE(in_files(folder).contains("wte.weight"));
  EXPECT_TRUE(value.bytes == open_family_weights(folder).read("layers.1.attn.k_proj.weight").bytes);
}

TEST_F(FamilyFolderTest, OfAMultimodalModelTheTextIsRead) {
  for (const std::string stem : {"language_model.model.", "model.language_model."}) {
    const fs::path folder = make("gemma3");
    const Json text = Json::parse(content_of(folder / "config.json"), "config.json");
    Json whole = Json::object();
    whole["model_type"] = "gemma3";
    whole["text_config"] = text;
    folder_.write("gemma3/config.json", whole.dump());
    rename(folder, [&](const std::string& name) { return stem + name.substr(sizeof("model")); });
    change(folder,
           [](auto& tensors) { tensors["vision_tower.x"] = HostTensor::zeros(DType::kF32, {3}); });
    const SavedTensors read = open_family_weights(folder);
    write_family_folder(folder_ / stem, {.model = config_of(read, {}), .origin = folder},
                        all_of(read));
    EXPECT_EQ(Json::parse(content_of(folder_ / stem / "config.json"), stem), text);
    make("gemma3");
    expect_same(in_files(folder), in_files(folder_ / stem));
  }
}

// Older files have the text's fields and names where a model of text alone has them.
TEST_F(FamilyFolderTest, TheTextOfAQwenWithPicturesIsWrittenAsAQwen2) {
  make("qwen2_vl");
  const auto expected = in_files(folder_ / "qwen2_vl");
  for (const bool is_flat : {false, true}) {
    const fs::path folder = make("qwen2_vl");
    if (is_flat) {
      Json whole = Json::parse(content_of(folder / "config.json"), "config.json");
      Json flat = whole.at("text_config");
      for (const auto& [key, value] : whole.members()) {
        if (key != "text_config") flat[key] = value;
      }
      folder_.write("qwen2_vl/config.json", flat.dump());
    } else {
      rename(folder, [](const std::string& name) {
        return "model.language_model." + name.substr(sizeof("model"));
      });
    }
    change(folder, [](auto& all) { all["visual.x"] = HostTensor::zeros(DType::kF32, {3}); });
    const SavedTensors read = open_family_weights(folder);
    const fs::path out = folder_ / (is_flat ? "flat" : "nested");
    write_family_folder(out, {.model = config_of(read, {}), .origin = folder}, all_of(read));
    const Json written = Json::parse(content_of(out / "config.json"), "config.json");
    EXPECT_EQ(written.at("model_type"), Json("qwen2"));
    for (const char* key : {"vision_config", "image_token_id", "text_config", "rope_scaling"}) {
      EXPECT_EQ(written.find(key), nullptr) << key;
    }
    expect_same(expected, in_files(out));
  }
}

TEST_F(FamilyFolderTest, NarrowWeightsAreWidenedExactlyAndWideOnesRounded) {
  const fs::path folder = make("phi3");
  const SavedTensors read = open_family_weights(folder);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const std::string name(name_of(dtype));
    write_family_folder(folder_ / name,
                        {.model = config_of(read, {}), .origin = folder, .dtype = dtype},
                        all_of(read));
    const SavedTensors narrow = open_family_weights(folder_ / name);
    for (const std::string& tensor : read.names()) {
      EXPECT_TRUE(narrow.read(tensor).bytes == testing::converted(read.read(tensor), dtype).bytes)
          << tensor;
    }
    EXPECT_THAT(content_of(folder_ / name / "config.json"),
                HasSubstr(dtype == DType::kBF16 ? "bfloat16" : "\"float16\""));
  }
}

TEST_F(FamilyFolderTest, ShardsThatDoNotFitTheirIndexAreRefused) {
  const auto with_index = [&](const std::function<void(Json&)>& change) {
    const fs::path folder = make_shards();
    Json index = Json::parse(content_of(folder / kFamilyIndex), "index");
    change(index["weight_map"]);
    folder_.write(std::string("shards/") + kFamilyIndex, index.dump());
    return refusal_of(folder);
  };
  const std::string tensor = "model.norm.weight";
  EXPECT_THAT(with_index([&](Json& map) { map[tensor] = "model-00009.safetensors"; }),
              AllOf(HasSubstr("model-00009.safetensors"), HasSubstr("does not exist")));
  EXPECT_THAT(with_index([&](Json& map) { map[tensor] = map.at("lm_head.weight"); }),
              HasSubstr("which has no such tensor"));
  EXPECT_THAT(with_index([&](Json& map) { map["model.x"] = Json(map.at(tensor)); }),
              HasSubstr("which has no such tensor"));
  for (const char* name :
       {"../x.safetensors", "/tmp/x.safetensors", "..", "", "a/b.safetensors", "config.json"}) {
    EXPECT_THAT(with_index([&](Json& map) { map[tensor] = name; }),
                HasSubstr("the name of a safetensors file beside it is expected"))
        << name;
  }
  EXPECT_THAT(with_index([&](Json& map) { map[tensor] = 3; }), HasSubstr("is expected"));
  EXPECT_THAT(with_index([&](Json& map) { map = Json::array(); }), HasSubstr("no weight_map"));
}

TEST_F(FamilyFolderTest, ATensorInTwoShardsIsRefusedAndALinkedFileIsRead) {
  const fs::path folder = make_shards(), first = family_weight_files(folder).front();
  const fs::path blob = folder_ / "blob";
  fs::rename(first, blob);
  fs::create_symlink(blob, first);  // as downloads are stored
  EXPECT_NO_THROW(open_family_weights(folder));
  fs::copy_file(family_weight_files(folder).back(), folder / "more.safetensors");
  Json index = Json::parse(content_of(folder / kFamilyIndex), "index");
  index["weight_map"]["more"] = "more.safetensors";
  folder_.write(std::string("shards/") + kFamilyIndex, index.dump());
  EXPECT_THAT(refusal_of(folder), AllOf(HasSubstr(" is in "), HasSubstr("more.safetensors")));
}

TEST_F(FamilyFolderTest, TruncatedFilesAreRefused) {
  for (const char* name : {"model-00002-of-00006.safetensors", kFamilyIndex}) {
    const fs::path folder = make_shards();
    ASSERT_TRUE(fs::exists(folder / name)) << name;
    const auto size = fs::file_size(folder / name);
    for (std::uintmax_t cut = 2; cut < size; cut += size / 40) {
      fs::resize_file(folder / name, size - cut);
      EXPECT_NE(refusal_of(folder), "");
    }
  }
}

TEST_F(FamilyFolderTest, WhatCannotBeWrittenLeavesNothing) {
  const fs::path folder = make("qwen3");
  const SavedTensors read = open_family_weights(folder);
  const FamilyExport good{.model = config_of(read, {}), .origin = folder};
  const auto nothing_is_left = [&] {
    return std::ranges::none_of(fs::directory_iterator(folder_.path()), [](const auto& entry) {
      return entry.path().filename().string().find("out") != std::string::npos;
    });
  };
  const auto refusal = [&](ErrorCode code, const FamilyExport& what, const TensorsToSave& from) {
    return message_of(code, [&] { write_family_folder(folder_ / "out", what, from); });
  };
  FamilyExport other = good;
  other.model.rope_theta = 7;
  EXPECT_THAT(refusal(ErrorCode::kUsage, other, all_of(read)), HasSubstr("of another model than"));
  other = good;
  other.origin.clear();
  EXPECT_THAT(refusal(ErrorCode::kUsage, other, all_of(read)), HasSubstr("is no Llama"));
  TensorsToSave large = all_of(read);
  large.get = [&](const std::string& name) {
    HostTensor out = read.read(name);
    if (name == "ln_final.weight") out.as<float>()[3] = 70000;
    return out;
  };
  other = good;
  other.dtype = DType::kF16;
  EXPECT_THAT(refusal(ErrorCode::kNotFinite, other, large), HasSubstr("ln_final.weight in f16"));
  EXPECT_TRUE(nothing_is_left());
  EXPECT_THAT(
      message_of(ErrorCode::kOutput, [&] { write_family_folder(folder, good, all_of(read)); }),
      HasSubstr("is there already"));
  expect_same(in_files(folder), in_files(make("qwen3")));
}

TEST_F(FamilyFolderTest, AModelThatBeganHereIsALlama) {
  ModelConfig tied = preset("tiny");
  tied.is_tied = true;
  tied.kv_heads = 2;
  tied.rope_scaling = {.kind = RopeScalingKind::kYarn, .factor = 4, .low = 1, .high = 32};
  tied.vocab = 40;
  tied.d_model = 32;
  tied.d_ff = 48;
  for (const ModelConfig& model :
       {tied,
        normalised(
            {.vocab = 40, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 4, .head_size = 6})}) {
    std::map<std::string, HostTensor> ours;
    for (const auto& [name, shape] : parameter_shapes(model)) {
      ours[name] = testing::random_tensor({DType::kF32, shape}, name);
    }
    TensorsToSave from{.types = {}, .get = [&](const std::string& n) { return ours.at(n); }};
    for (const auto& [name, value] : ours) from.types[name] = {value.dtype, value.shape};
    fs::remove_all(folder_ / "llama");
    write_family_folder(folder_ / "llama", {.model = model, .origin = {}}, from);
    const SavedTensors read = open_family_weights(folder_ / "llama");
    EXPECT_EQ(read.names().size(), ours.size());
    for (const auto& [name, value] : ours) EXPECT_TRUE(read.read(name).bytes == value.bytes);
    ModelConfig back = read_model(folder_ / "llama").config;
    back.name = model.name;
    back.source.clear();
    EXPECT_EQ(back, normalised(model));
  }
}

}  // namespace
}  // namespace tracestep
