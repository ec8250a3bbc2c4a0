#include "weights/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "exec/eager.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"

namespace tracestep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NotFiniteTest, EveryFloatingTypeIsCountedByKind) {
  const std::vector<double> values{1.0,           std::nan(""), -kInfinity, 0.0,
                                   -std::nan(""), kInfinity,    -0.0};
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    const auto found = find_not_finite("x", testing::from_doubles(dtype, {7}, values));
    ASSERT_TRUE(found.has_value()) << name_of(dtype);
    EXPECT_EQ(found->str(), "x holds 2 NaN and 2 infinite of 7 values") << name_of(dtype);
  }
}

TEST(NotFiniteTest, TheLargestAndTheSmallestNumbersAreFinite) {
  for (const auto& [dtype, largest] :
       {std::pair{DType::kF64, std::numeric_limits<double>::max()},
        std::pair{DType::kF32, 0x1.fffffep127}, std::pair{DType::kBF16, 0x1.fep127},
        std::pair{DType::kF16, 65504.0}}) {
    const std::vector<double> values{largest, -largest, 0x1p-24, 0.0};
    EXPECT_FALSE(find_not_finite("x", testing::from_doubles(dtype, {4}, values)).has_value());
  }
  const std::vector<std::int64_t> tokens{-1, 0x7ff0'0000'0000'0000};
  EXPECT_FALSE(find_not_finite("t", HostTensor::of<std::int64_t>(DType::kI64, {2}, tokens)));
}

TEST(NotFiniteTest, OfSeveralTensorsTheFirstByNameIsTold) {
  const HostTensor good = testing::from_doubles(DType::kF32, {1}, std::vector{1.0});
  const HostTensor bad = testing::from_doubles(DType::kF32, {1}, std::vector{kInfinity});
  EXPECT_EQ(find_not_finite({{"a", good}, {"c", bad}, {"b", bad}})->what, "b");
  EXPECT_FALSE(find_not_finite({{"a", good}}).has_value());
}

class NotFiniteResultTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ops::register_all();
    device_ = testing::backend_named(GetParam()).make({});
  }

  // Searches after a run of `text` on %x = `values`.
  std::optional<NotFinite> find(const std::string& text, std::vector<double> values) {
    Store store(*device_);
    EagerExecutor executor(store,
                           program_for(parse_program(text), {.mode = Mode::kInference}, *device_));
    const Shape shape{static_cast<std::int64_t>(values.size())};
    executor.set_input("x", testing::from_doubles(DType::kF32, shape, values));
    executor.run();
    return find_not_finite(executor);
  }

  std::unique_ptr<Device> device_;
};
INSTANTIATE_TEST_SUITE_P(Devices, NotFiniteResultTest,
                         ::testing::ValuesIn(testing::backend_names()));

TEST_P(NotFiniteResultTest, TheFirstResultIsNamedByItsOpItsPathAndItsPhase) {
  const std::string text = R"(program "p" {
    input %x : f32[3]
    %0 : f32[3] = square(%x) @ layers.0.a forward
    %1 : f32[3] = exp(%0) @ layers.3.attn.softmax backward
    %2 : f32[3] = log(%1) @ layers.4.b forward
    output "y" = %2
  })";
  EXPECT_EQ(find(text, {1.0, 100.0, 2.0})->str(),
            "the result of exp at layers.3.attn.softmax (backward) holds 0 NaN and 1 infinite of "
            "3 values");
  EXPECT_FALSE(find(text, {1.0, 3.0, 2.0}).has_value());
}

// A program of primitive ops hides the future with -∞, which is no mistake.
TEST_P(NotFiniteResultTest, InfinitiesOfConstantsAreMeantButNotWhatTheyHide) {
  const std::string text = R"(program "p" {
    input %x : f32[2]
    %0 : f32[] = fill() {dtype=f32, shape=[], value=-inf} @ mask forward
    %1 : f32[2] = broadcast(%0) {shape=[2]} @ mask forward
    %2 : f32[2] = iota() {axis=0, dtype=f32, shape=[2]} @ mask forward
    %3 : bool[2] = lt(%2, %x) @ mask forward
    %4 : f32[2] = select(%3, %x, %1) @ mask forward
    %5 : f32[2] = exp(%4) @ softmax forward
    %6 : f32[2] = log(%5) @ after forward
    %7 : f32[2] = sub(%6, %6) @ later forward
    output "y" = %7
  })";
  // log(exp(-∞)) is -∞ and no constant any more.
  EXPECT_EQ(find(text, {2.0, 0.5})->what, "the result of log at after (forward)");
  EXPECT_FALSE(find(text, {2.0, 3.0}).has_value());
  EXPECT_EQ(find(text, {2.0, 200.0})->what, "the result of exp at softmax (forward)");
}

}  // namespace
}  // namespace tracestep
