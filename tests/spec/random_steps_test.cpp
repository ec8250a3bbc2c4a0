// Steps with every option at random: each program holds what the verifier asks of it behind every
// pass.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/random_step.h"

namespace tracestep::testing {
namespace {

TEST(RandomStepsTest, TheProgramOfEveryOptionPassesTheVerifierBehindEveryPass) {
  constexpr std::uint64_t kSteps = 250;
  ops::register_all();
  int made = 0;
  for (std::uint64_t seed = 1; seed <= kSteps; ++seed) {
    Dice dice(seed);
    RunSpec run = random_step(dice, random_small_model(dice));
    run.verify = true;
    try {
      step_program(run, DeviceTraits{});
      ++made;
    } catch (const Error& error) {  // options that exclude each other
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << text_of_step(run) << "\n" << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ": " << text_of_step(run) << "\n" << error.what();
    }
  }
  EXPECT_GT(made, static_cast<int>(kSteps) / 5);
}

}  // namespace
}  // namespace tracestep::testing
