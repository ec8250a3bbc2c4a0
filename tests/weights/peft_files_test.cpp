// Adapters in PEFT's form, without PEFT: names and rows of the family's files, what is refused, and
// the merged weights. tests/python/adapters_test.py has them beside PEFT.
#include "weights/peft_files.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_device.h"
#include "base/error.h"
#include "nn/families.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "spec/parse_words.h"
#include "spec/peft_config.h"
#include "spec/step_program.h"
#include "support/family_folder.h"
#include "support/host_values.h"
#include "support/temp_folder.h"
#include "weights/model_store.h"
#include "weights/nf4_weights.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PeftFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  RunSpec of_family(const std::string& kind, const std::string& lora) {
    const fs::path base = folder_.path() / ("my-" + kind);
    if (!fs::exists(base)) testing::write_family_fixture(kind, base);
    const auto file = known_model_at(base);
    RunSpec out{.model = file->config, .shape = {.batch = 1, .context = 4}};
    out.model.source = base.string();
    out.model.file = file;
    out.lora = parse_adapters("lora", lora);
    return out;
  }

  static void bind(Store& store, const RunSpec& run) {
    store.bind(program_for(loss_program(run), run, DeviceTraits{}));
  }
  static TensorsToSave tensors_of(const WholeTensors& from) {
    TensorsToSave out{.types = {},
                      .get = [&from](const std::string& name) { return from.get(name); }};
    for (const std::string& name : from.weights()) out.types[name] = from.type(name);
    return out;
  }
  // Every element has a value of its own.
  static void number(const WholeTensors& to) {
    float next = 1;
    for (const std::string& name : to.names(LeafKind::kParameter)) {
      HostTensor value = to.get(name);
      for (float& x : value.as<float>()) x = next += 1;
      to.set(name, value);
    }
  }
  static std::string message_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TempFolder folder_;
};

TEST_F(PeftFilesTest, WhatIsWrittenIsReadBack) {
  const auto device = make_cpu_device({.threads = 1});
  for (const char* kind : {"llama3", "qwen2", "gemma2", "gpt2"}) {
    const std::string targets = std::string(kind) == "gpt2" ? "o+up+down" : "all";
    RunSpec run = of_family(kind, "r=3,alpha=5,rslora,targets=" + targets);
    Store store(*device);
    bind(store, run);
    const WholeTensors tensors(store);
    number(tensors);
    std::map<std::string, HostTensor> before = parameters_of(tensors);
    const fs::path out = folder_.path() / ("adapter-" + std::string(kind));
    write_peft_folder(out, run.model, run.lora, run.model.source, tensors_of(tensors));
    for (const auto& [name, value] : before) {
      tensors.set(name, HostTensor::zeros(value.dtype, value.shape));
    }
    run.lora = parse_adapters("lora", "from=" + out.string());
    EXPECT_EQ(run.lora.rank, 3);
    EXPECT_TRUE(run.lora.is_rank_stabilised);
    start_adapters(tensors, run);
    for (const auto& [name, value] : before) {
      EXPECT_EQ(tensors.get(name).bytes, value.bytes) << kind << " " << name;
    }
  }
}

TEST_F(PeftFilesTest, NamesRowsAndTargetsAreThoseOfTheFamily) {
  const auto device = make_cpu_device({.threads = 1});
  const RunSpec run = of_family("llama3", "r=2,targets=layers.1.attn.q_proj+v");
  Store store(*device);
  bind(store, run);
  const WholeTensors tensors(store);
  number(tensors);
  const fs::path out = folder_.path() / "adapter";
  write_peft_folder(out, run.model, run.lora, run.model.source, tensors_of(tensors));
  const SafetensorsFile file(out / kPeftWeights);
  const std::string theirs = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight";
  ASSERT_THAT(file.names(), Contains(theirs));
  EXPECT_EQ(file.names().size(), 6u);
  // The second element of our first pair is the first of the second half of the head there.
  const auto ours = testing::to_doubles(tensors.get("layers.1.attn.q_proj.lora_B.weight"));
  const auto rows = testing::to_doubles(file.read(theirs));
  const auto half = static_cast<std::size_t>(run.model.head_width() / 2);
  EXPECT_EQ(rows[half * 2], ours[1 * 2]);
  EXPECT_EQ(rows[1 * 2], ours[2 * 2]);
  // q is adapted in one layer alone, so that the name would say too much.
  EXPECT_THAT(read_peft_config(out).targets,
              ElementsAre("layers.0.*.v_proj", "layers.1.*.q_proj", "layers.1.*.v_proj"));
  RunSpec again = run;
  again.lora = read_peft_config(out);
  Store read(*device);
  bind(read, again);
  start_adapters(WholeTensors(read), again);
  for (const std::string& name : tensors.names(LeafKind::kParameter)) {
    EXPECT_EQ(read.get(name).bytes, tensors.get(name).bytes) << name;
  }
}

// As PEFT saves target_modules="all-linear" of a small model, and ends of paths.
TEST_F(PeftFilesTest, WholePathsAndEndsOfPathsAreTargets) {
  const fs::path out = folder_.path() / "config";
  fs::create_directories(out);
  std::ofstream(out / kPeftConfig) <<
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules":
 ["model.layers.11.mlp.down_proj", "0.self_attn.q_proj", "mlp.up_proj", "up_proj", "lm_head"]})";
  EXPECT_THAT(read_peft_config(out).targets,
              ElementsAre("layers.0.*.q_proj", "layers.11.*.down_proj", "lm_head", "up_proj"));
}

TEST_F(PeftFilesTest, MergedWeightsHaveTheScaledProductAndNoAdapters) {
  const std::vector<float> w{1, 2, 3, 4, 5, 6}, a{1, 10, 100}, b{2, 3};
  const auto tensor = [](const std::vector<float>& x, const Shape& shape) {
    return HostTensor::of<float>(DType::kF32, shape, x);
  };
  const std::map<std::string, HostTensor> all{{"p.weight", tensor(w, {2, 3})},
                                              {"p.lora_A.weight", tensor(a, {1, 3})},
                                              {"p.lora_B.weight", tensor(b, {2, 1})},
                                              {"p.bias", tensor(b, {2})}};
  TensorsToSave from{.types = {}, .get = [&](const std::string& name) { return all.at(name); }};
  for (const auto& [name, value] : all) from.types[name] = {value.dtype, value.shape};
  const TensorsToSave out = merged(from, {.rank = 1, .alpha = 0.5});
  EXPECT_EQ(out.types.size(), 2u);
  EXPECT_THAT(testing::to_doubles(out.get("p.weight")), ElementsAre(2, 12, 103, 5.5, 20, 156));
  EXPECT_THAT(testing::to_doubles(out.get("p.bias")), ElementsAre(2, 3));
}

// Codes are widened first, those of weights without adapters too, and the sum stays in float32.
TEST_F(PeftFilesTest, MergedWeightsOfFourBitsAreWhatTheProductsReadAndTheAdapters) {
  std::vector<float> w(2 * 64);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 37) - 18.5F;
  const HostTensor weight = HostTensor::of<float>(DType::kF32, {2, 64}, w);
  const Nf4Weights coded = to_nf4(weight);
  const HostTensor wide = from_nf4(coded);
  EXPECT_LE(testing::max_difference(testing::to_doubles(wide), testing::to_doubles(weight)),
            0.16 * 18.5);  // half the widest gap between codes
  std::map<std::string, HostTensor> all{
      {"p.lora_A.weight", HostTensor::of<float>(DType::kF32, {1, 64}, std::vector<float>(64, 2))},
      {"p.lora_B.weight", HostTensor::of<float>(DType::kF32, {2, 1}, std::vector<float>{1, -3})}};
  for (const std::string name : {"p.weight", "q.weight"}) {
    all[name + std::string(kNf4Codes)] = coded.codes;
    all[name + std::string(kNf4Magnitudes)] = coded.magnitudes;
    all[name + std::string(kNf4Scales)] = coded.scales;
    all[name + std::string(kNf4Offset)] = coded.offset;
  }
  TensorsToSave from{.types = {}, .get = [&](const std::string& name) { return all.at(name); }};
  for (const auto& [name, value] : all) from.types[name] = {value.dtype, value.shape};
  const TensorsToSave out = merged(from, {.rank = 1, .alpha = 0.5, .base = BaseWeights::kNf4});
  const Type expected{DType::kF32, {2, 64}};
  EXPECT_EQ(out.types, (TensorTypes{{"p.weight", expected}, {"q.weight", expected}}));
  EXPECT_EQ(out.get("q.weight").bytes, wide.bytes);
  const auto sum = testing::to_doubles(out.get("p.weight")), base = testing::to_doubles(wide);
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_NEAR(sum[i], base[i] + 0.5 * 2 * (i < 64 ? 1 : -3), 1e-5);
  }
}

TEST_F(PeftFilesTest, JoinedProjectionsAndOtherAdaptersAreRefusedByName) {
  const auto device = make_cpu_device({.threads = 1});
  const RunSpec phi = of_family("phi3", "r=2,targets=q");
  Store store(*device);
  bind(store, phi);
  const WholeTensors tensors(store);
  EXPECT_THAT(message_of([&] {
                write_peft_folder(folder_.path() / "no", phi.model, phi.lora, phi.model.source,
                                  tensors_of(tensors));
              }),
              HasSubstr("join layers.0.attn.q_proj.weight with others as "
                        "model.layers.0.self_attn.qkv_proj.weight"));
  const fs::path there = folder_
                             .write("there/adapter_config.json",
                                    R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
                                           "target_modules": ["q_proj"]})")
                             .parent_path();
  const std::string from = "from=" + there.string();
  EXPECT_EQ(parse_adapters("lora", from).rank, 4);
  EXPECT_THAT(message_of([&] { parse_adapters("lora", "r=6," + from); }), HasSubstr("r is 4 in"));
  for (const auto& [text, what] :
       {std::pair{R"({"peft_type": "IA3"})", "peft_type is \"IA3\""},
        {R"({"peft_type": "LORA", "r": 2.5, "lora_alpha": 1, "target_modules": ["q_proj"]})",
         "no whole number"},
        {R"({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]})", "lora_alpha is missing"},
        {R"({"peft_type": "LORA", "r": 2, "lora_alpha": 1})", "target_modules is missing"},
        {R"({"peft_type": "LORA", "r": 2, "lora_alpha": 1, "target_modules": ["q_proj"],
             "use_dora": true})",
         "use_dora is true"}}) {
    folder_.write("there/adapter_config.json", text);
    EXPECT_THAT(message_of([&] { parse_adapters("lora", from); }), HasSubstr(what));
  }
}

}  // namespace
}  // namespace tracestep
