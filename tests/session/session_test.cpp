// From a specification to numbers.
#include "session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu_device.h"
#include "backends/null/null_device.h"
#include "base/error.h"
#include "ir/print.h"
#include "ops/functions.h"
#include "session/devices.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

RunSpec tiny(Mode mode) {
  return {.model = {.vocab = 20, .d_model = 16, .d_ff = 24, .layers = 1, .heads = 2},
          .shape = {.batch = 1, .context = 8},
          .mode = mode,
          .seed = 7};
}

double loss_of(const RunSpec& spec) {
  const auto device = make_cpu_device({.threads = 1});
  Session session(*device, spec);
  fill_for_timing(session);
  session.executor().run();
  return session.executor().scalar("loss");
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(SessionTest, TheSpecificationAndItsSeedDecideTheNumbers) {
  RunSpec spec = tiny(Mode::kStep);
  const double loss = loss_of(spec);
  EXPECT_GT(loss, 0.0);
  EXPECT_EQ(loss_of(spec), loss);
  spec.seed = 8;
  EXPECT_NE(loss_of(spec), loss);
}

TEST_F(SessionTest, ItsProgramIsTheOneOfTheSpecification) {
  const auto device = make_null_device();
  const RunSpec spec = tiny(Mode::kInference);
  Session session(*device, spec);
  EXPECT_EQ(print(session.program()), print(step_program(spec, *device)));
  EXPECT_NO_THROW(fill_for_timing(session)) << "nothing is computed, and nothing is needed";
}

TEST(DevicesTest, ADeviceIsFoundByTheNameBeforeTheColon) {
  register_device("fake", [](const RunSpec& spec) {
    EXPECT_EQ(spec.place.device, "fake:3");
    return make_null_device();
  });
  EXPECT_NE(make_device({.place = {.device = "fake:3"}}), nullptr);
  try {
    make_device({.place = {.device = "fak"}});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.where(), "device");
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean fake?"));
  }
}

}  // namespace
}  // namespace tracestep
