// The table of fields: texts and values, and the rules that keys, labels and defaults follow.
#include "spec/fields.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

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
  for (const char* name : {"context", "batch", "vocab", "d_model", "threads", "seed"}) {
    EXPECT_EQ(text_of(field_named(name), with(name, "17")), "17");
  }
  EXPECT_EQ(with("memory_limit_bytes", "1MiB").place.memory_limit_bytes, 1 << 20);
  EXPECT_EQ(with("tune_file", "a.json").place.tune_file, "a.json");
}

TEST(FieldsTest, AnUnknownTextIsNamedWithWhatIsKnown) {
  EXPECT_THAT(message_of([] { with("precision", "fp8"); }), HasSubstr("one of fp32, tf32, bf16"));
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
    EXPECT_EQ(key.find(field.name) != nullptr, field.show != FieldShow::kNowhere) << field.name;
  }
  for (const auto& [name, text] : {std::pair{"size", "tiny"},
                                   {"context", "7"},
                                   {"mode", "forward"},
                                   {"precision", "bf16"},
                                   {"ops", "primitive"},
                                   {"attention", "flash"},
                                   {"recompute", "blocks"},
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

TEST(FieldsTest, ALabelNamesTheAxes) {
  const RunSpec spec{.model = preset("tiny"), .shape = {2, 64}};
  EXPECT_EQ(label_of(spec), "tiny context 64 step fp32 fused naive");
  EXPECT_EQ(label_of(spec, false), "tiny 64 step fp32 fused naive");
  EXPECT_EQ(label_of(with("executor", "eager")), label_of({}));
  EXPECT_THAT(label_of(with("executor", "compiled")), HasSubstr("fused naive compiled"));
  EXPECT_THAT(label_of(with("recompute", "every=2")), HasSubstr("fused naive every=2"));
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

}  // namespace
}  // namespace tracestep
