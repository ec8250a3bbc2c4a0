// The table of a measurement's fields: texts, and what of them stands in a row's key.
#include "spec/protocol.h"

#include <set>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

Protocol with(std::string_view field, const std::string& text) {
  Protocol out;
  field_named(protocol_fields(), field).parse("test", text)(out);
  return out;
}

Json key_of(const Protocol& protocol) {
  Json key = Json::object();
  add_key(protocol, key);
  return key;
}

TEST(ProtocolTest, EveryFieldIsReadAsWhatIsPrintedAndItsFlagIsItsOwn) {
  std::set<std::string> flags;
  for (const ProtocolField& field : protocol_fields()) {
    EXPECT_EQ(text_of(field, with(field.name, "17")), "17") << field.name;
    EXPECT_EQ(field.role, FieldRole::kProtocol) << field.name;
    EXPECT_TRUE(flags.insert(field.flag).second) << field.flag;
  }
}

TEST(ProtocolTest, ADefaultIsSaidWhereTheFlagWouldTakeIt) {
  EXPECT_EQ(default_text(field_named(protocol_fields(), "steps"), {}), "10");
  EXPECT_EQ(default_text(field_named(protocol_fields(), "max_seconds"), {}), "60");
  EXPECT_EQ(default_text(field_named(protocol_fields(), "max_noise_percent"), {}), "");
}

TEST(ProtocolTest, TheLimitsOfSamplingByNoiseAreInTheKeyOnlyWithIt) {
  EXPECT_EQ(key_of({}).dump(), R"({"warmup":5,"steps":10})");
  EXPECT_EQ(key_of({.max_seconds = 3}), key_of({}));
  EXPECT_EQ(key_of({.steps = 4, .max_noise_percent = 1.5}).dump(),
            R"({"warmup":5,"steps":4,"max_noise_percent":1.5,"max_steps":400,"max_seconds":60.0})");
}

}  // namespace
}  // namespace tracestep
