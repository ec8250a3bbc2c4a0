// The table of fields: texts and values, and the rules that keys, labels and defaults follow.
#include "spec/fields.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

RunSpec with(std::string_view field, const std::string& text) {
  RunSpec out;
  field_named(field).parse("test", text)(out);
  return out;
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(FieldsTest, NamesAndFlagsAreUnique) {
  std::set<std::string> names, flags;
  for (const RunField& field : run_fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(flags.insert(field.flag).second) << field.flag;
    EXPECT_TRUE(field.flag.starts_with("--")) << field.flag;
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_EQ(is_column(field), !field.about.empty()) << field.name;
  }
}

TEST(FieldsTest, EveryChoiceIsReadAsWhatIsPrinted) {
  for (const RunField& field : run_fields()) {
    for (const std::string& text : field.choices) {
      EXPECT_EQ(text_of(field, with(field.name, text)), text) << field.name;
    }
  }
  EXPECT_EQ(text_of(field_named("recompute"), with("recompute", "every=2")), "every=2");
  EXPECT_EQ(text_of(field_named("loss_chunks"), with("loss_chunks", "auto")), "auto");
  for (const char* name :
       {"loss_chunks", "context", "batch", "vocab", "d_model", "threads", "seed"}) {
    EXPECT_EQ(text_of(field_named(name), with(name, "17")), "17");
  }
  EXPECT_EQ(with("memory_limit_bytes", "1MiB").place.memory_limit_bytes, 1 << 20);
  EXPECT_EQ(text_of(field_named("memory_limit_bytes"), with("memory_limit_bytes", "1.5GiB")),
            "1536MiB");
  EXPECT_EQ(with("tune_file", "a.json").place.tune_file, "a.json");
}

TEST(FieldsTest, LengthsAndWidthsCountInPowersOfTwoAndOthersInThousands) {
  EXPECT_EQ(with("context", "4k").shape.context, 4096);
  EXPECT_EQ(with("batch", "1k").shape.batch, 1024);
  EXPECT_EQ(with("d_model", "4k").model.d_model, 4096);
  EXPECT_EQ(with("vocab", "32k").model.vocab, 32'000);
  EXPECT_EQ(with("seed", "1e3").seed, 1000);
  EXPECT_THAT(message_of([] { with("context", "1.0001k"); }), HasSubstr("is not a whole number"));
}

TEST(FieldsTest, ADeviceIsNamedInAnyCase) {
  EXPECT_EQ(with("device", "GPU").place.device, "cuda");
  EXPECT_EQ(with("device", "gpu:1").place.device, "cuda:1");
  EXPECT_EQ(with("device", "CPU").place.device, "cpu");
  EXPECT_EQ(with("device", "gpux").place.device, "gpux");
}

TEST(FieldsTest, AnUnknownTextIsNamedWithWhatIsKnown) {
  EXPECT_THAT(message_of([] { with("precision", "fp9"); }),
              HasSubstr("one of fp32, tf32, fp32-split, bf16"));
  EXPECT_THAT(message_of([] { with("ops", "primitve"); }), HasSubstr("did you mean primitive?"));
  EXPECT_THAT(message_of([] { with("executor", "compield"); }),
              HasSubstr("did you mean compiled?"));
  EXPECT_THAT(message_of([] { with("batch", "0"); }), HasSubstr("[test] \"0\" is out of range"));
  EXPECT_THAT(message_of([] { with("device", ""); }), HasSubstr("the value is empty"));
}

TEST(FieldsTest, ADefaultThatTheFlagWouldRefuseIsNotSaid) {
  EXPECT_EQ(default_text(field_named("ops"), {}), "fused");
  EXPECT_EQ(default_text(field_named("seed"), {}), "0");
  for (const char* name : {"threads", "memory_limit_bytes", "tune", "tune_file"}) {
    EXPECT_EQ(default_text(field_named(name), {}), "") << name;
  }
}

TEST(FieldsTest, AKeyHoldsEveryFieldThatIsShownAndTellsRunsApart) {
  const Json key = key_of({});
  for (const RunField& field : run_fields()) {
    const bool is_of_others = field.group == FieldGroup::kModel && field.applies &&
                              !field.applies({});  // the folder of a captured module
    EXPECT_EQ(key.find(field.name) != nullptr, field.show != FieldShow::kNowhere && !is_of_others)
        << field.name;
  }
  for (const auto& [name, text] : {std::pair{"size", "tiny"},
                                   {"context", "7"},
                                   {"mode", "forward"},
                                   {"precision", "bf16"},
                                   {"ops", "primitive"},
                                   {"attention", "flash"},
                                   {"updates", "early"},
                                   {"moments", "bf16"},
                                   {"offload", "optimizer"},
                                   {"grad_accum_dtype", "low"},
                                   {"recompute", "blocks"},
                                   {"loss_chunks", "2"},
                                   {"ffn_chunks", "2"},
                                   {"parallel", "dp=2,shard=1"},
                                   {"device", "null"},
                                   {"seed", "3"}}) {
    EXPECT_NE(canonical_text(key_of(with(name, text))), canonical_text(key)) << name;
  }
}

TEST(FieldsTest, AKeyIsTheSameInAnyOrderAndBeforeAFieldWasKnown) {
  const Json key = key_of({});
  Json::Object turned(key.members().rbegin(), key.members().rend());
  EXPECT_EQ(canonical_text(Json(turned)), canonical_text(key));
  std::erase_if(turned, [](const auto& member) { return member.first == "attention"; });
  EXPECT_EQ(canonical_text(Json(turned)), canonical_text(key));
  EXPECT_NE(canonical_text(Json(turned)), canonical_text(key_of(with("attention", "flash"))));
  turned.emplace_back("steps", 5);
  EXPECT_NE(canonical_text(Json(turned)), canonical_text(key));
}

TEST(FieldsTest, CompositesAndPassesAreSetsByName) {
  EXPECT_EQ(text_of(field_named("ops"), with("ops", "softmax+norm")), "norm+softmax");
  EXPECT_EQ(text_of(field_named("ops"), with("ops", "norm+swiglu+rope+softmax+loss+optimizer")),
            "fused");
  EXPECT_THAT(message_of([] { with("ops", "norm+sotfmax"); }), HasSubstr("did you mean softmax?"));
  EXPECT_THAT(message_of([] { with("ops", "norm+fused"); }), HasSubstr("one of norm, swiglu"));
  EXPECT_THAT(message_of([] { with("ops", "norm+norm"); }), HasSubstr("norm is there twice"));
  const RunField& passes = field_named("compile_passes");
  for (const char* text : {"auto", "none", "all", "shadow", "shadow+join"}) {
    EXPECT_EQ(text_of(passes, with("compile_passes", text)), text);
  }
  EXPECT_EQ(text_of(passes, with("compile_passes", "join+shadow")), "shadow+join");
  EXPECT_THAT(message_of([] { with("compile_passes", "simplify"); }), HasSubstr("one of shadow"));
}

TEST(FieldsTest, AdaptersAndFrozenPartsAreReadAsWhatIsPrinted) {
  const RunField &lora = field_named("lora"), &freeze = field_named("freeze");
  for (const char* text : {"none", "r=8", "r=16,alpha=32,targets=q+k+v+o", "r=4,dropout=0.1,rslora",
                           "r=2,alpha=0.5,targets=layers.0-3.*.q_proj+all"}) {
    EXPECT_EQ(text_of(lora, with("lora", text)), text);
  }
  EXPECT_EQ(text_of(lora, with("lora", "targets=k")), "r=8,targets=k");
  EXPECT_DOUBLE_EQ(with("lora", "r=16,alpha=32").lora.scale(), 2.0);
  EXPECT_DOUBLE_EQ(with("lora", "r=16,alpha=32,rslora").lora.scale(), 8.0);
  EXPECT_THAT(message_of([] { with("lora", "rank=4"); }), HasSubstr("r=N, alpha=X"));
  EXPECT_THAT(message_of([] { with("lora", "r=4,r=5"); }), HasSubstr("r is there twice"));
  EXPECT_THAT(message_of([] { with("lora", "r=0"); }), HasSubstr("0"));
  EXPECT_THAT(message_of([] { with("lora", "targets=q+"); }), HasSubstr("no path"));
  for (const char* text : {"none", "layers.0-15+token_embeddings", "*.q_proj"}) {
    EXPECT_EQ(text_of(freeze, with("freeze", text)), text);
  }
  EXPECT_THAT(message_of([] { with("freeze", "a b"); }), HasSubstr("\"a b\" is no path"));
}

TEST(FieldsTest, ALabelNamesTheAxesAndWhatIsUnusual) {
  RunSpec spec{.model = preset("tiny"), .shape = {4, 64}};
  EXPECT_EQ(label_of(spec), "tiny context 64 step fp32 fused");
  spec.model.vocab = 256;
  spec.shape.batch = 2;
  EXPECT_EQ(label_of(spec), "tiny context 64 batch 2 vocab 256 step fp32 fused");
  spec.attention = AttentionForm::kFlash;
  spec.executor = ExecutorKind::kCompiled;
  EXPECT_EQ(label_of(spec),
            "tiny context 64 batch 2 vocab 256 step fp32 fused attention flash executor compiled");
  spec = {.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2}};
  EXPECT_EQ(label_of(spec),
            "custom d_model 32 d_ff 48 layers 2 heads 2 context 128 vocab 50 step fp32 fused");
}

TEST(FieldsTest, RunsWithDifferentProgramsHaveDifferentLabelsAndKeys) {
  ops::register_all();
  const RunSpec usual{.model = preset("tiny"), .shape = {4, 16}};
  std::set<std::string> seen_labels{label_of(usual)}, seen_keys{canonical_text(key_of(usual))};
  const std::string program = print(step_program(usual));
  for (const auto& [name, text] : {std::pair{"size", "small"},
                                   {"d_model", "128"},
                                   {"d_ff", "128"},
                                   {"layers", "2"},
                                   {"heads", "2"},
                                   {"context", "8"},
                                   {"batch", "2"},
                                   {"vocab", "256"},
                                   {"mode", "forward"},
                                   {"precision", "bf16"},
                                   {"ops", "primitive"},
                                   {"attention", "flash"},
                                   {"executor", "compiled"},
                                   {"updates", "early"},
                                   {"moments", "bf16"},
                                   {"recompute", "every=2"},
                                   {"loss_chunks", "2"},
                                   {"lora", "r=4,targets=q"},
                                   {"freeze", "layers.0-1"},
                                   {"parallel", "dp=2,shard=1"}}) {
    RunSpec other = usual;
    field_named(name).parse("test", text)(other);
    EXPECT_NE(print(step_program(other)), program) << name;
    EXPECT_TRUE(seen_labels.insert(label_of(other)).second) << label_of(other);
    EXPECT_TRUE(seen_keys.insert(canonical_text(key_of(other))).second) << name;
  }
}

TEST(FieldsTest, ARunComesBackFromItsKey) {
  RunSpec spec{.model = preset("small"), .shape = {2, 64}, .mode = Mode::kForward};
  spec.model.vocab = 256;
  spec.precision = {.autocast = DType::kBF16};
  spec.attention = AttentionForm::kFlash;
  spec.place = {.device = "cuda:1", .threads = 3, .memory_limit_bytes = 1 << 20};
  spec.seed = 7;
  EXPECT_EQ(key_of(run_of_key(key_of(spec))), key_of(spec));
  spec.model = {.name = "custom", .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2};
  Json key = key_of(spec);
  key["steps"] = 10;  // no field of a run
  EXPECT_EQ(key_of(run_of_key(key)), key_of(spec));
  key["mode"] = "sideways";
  EXPECT_THAT(message_of([&] { run_of_key(key); }), HasSubstr("mode"));
}

}  // namespace
}  // namespace tracestep
