// Products of float32 by parts: never less accurate than plain ones, infinities and NaN where IEEE
// has them, rows of any range, the same bits every time. A device without such products multiplies
// plainly, and passes as well.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/functions.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep::testing {
namespace {

constexpr double kUnit = 0x1p-24;

struct Sizes {
  std::int64_t m, n, k;
};

Program product(const Sizes& s, bool by_parts) {
  ops::register_all();
  Builder b("product");
  const Val x = b.input("x", {DType::kF32, {s.m, s.k}}),
            w = b.input("w", {DType::kF32, {s.n, s.k}});
  b.output("y", b.call1("matmul", {x, w}, {{"transpose_b", true}, {"by_parts", by_parts}}));
  return b.finish();
}

std::vector<double> values_of(Device& device, const Program& program, const Tensors& leaves) {
  return to_doubles(run_program(device, program, leaves).at("y"));
}

// Σ|x w| of every result.
std::vector<double> sums_of_magnitudes(const Sizes& s, Tensors leaves) {
  for (auto& [name, tensor] : leaves) {
    std::vector<double> x = to_doubles(tensor);
    for (double& v : x) v = std::abs(v);
    tensor = from_doubles(DType::kF32, tensor.shape, x);
  }
  return to_doubles(reference_values(product(s, false), leaves).at("y"));
}

struct Errors {
  double largest = 0, rms = 0;  // in units of 2^-24 Σ|x w|
};
Errors errors_of(const std::vector<double>& found, const std::vector<double>& exact,
                 const std::vector<double>& magnitudes) {
  Errors out;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(found[i] - exact[i]) / (kUnit * magnitudes[i]);
    out.largest = std::max(out.largest, error);
    out.rms += error * error;
  }
  out.rms = std::sqrt(out.rms / static_cast<double>(exact.size()));
  return out;
}

// A library may sum parts of K by themselves, which is more accurate; 1 and 0.25 are enough then.
TEST(SplitProductTest, ErrorsAreNoMoreThanThoseOfFloat32) {
  for (const Sizes& s : {Sizes{128, 160, 128}, Sizes{200, 333, 777}, Sizes{96, 64, 4096}}) {
    const Program by_parts = product(s, true), plain = product(s, false);
    const Tensors leaves = random_leaves(by_parts);
    const std::vector<double> exact = to_doubles(reference_values(plain, leaves).at("y"));
    const std::vector<double> magnitudes = sums_of_magnitudes(s, leaves);
    for (const Backend& backend : backends_under_test()) {
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", backend.name, s.m, s.n, s.k));
      const auto device = backend.make({.guarded = true});
      const Errors own = errors_of(values_of(*device, by_parts, leaves), exact, magnitudes);
      const Errors native = errors_of(values_of(*device, plain, leaves), exact, magnitudes);
      EXPECT_LE(own.largest, std::max(1.0, native.largest));
      EXPECT_LE(own.rms, std::max(0.25, native.rms));
    }
  }
}

TEST(SplitProductTest, RowsOfAnyMagnitudeAreAsAccurate) {
  const Sizes s{130, 150, 192};
  const Program by_parts = product(s, true);
  for (const int exponent : {-140, -100, 60}) {
    Tensors leaves = random_leaves(by_parts, 0.5, 1.0);
    std::vector<double> x = to_doubles(leaves.at("x"));
    for (double& v : x) v = std::ldexp(v, exponent);
    leaves["x"] = from_doubles(DType::kF32, {s.m, s.k}, x);  // denormals lose bits here
    const std::vector<double> exact = to_doubles(reference_values(by_parts, leaves).at("y"));
    for (const Backend& backend : backends_under_test()) {
      SCOPED_TRACE(fmt::format("{} 2^{}", backend.name, exponent));
      const auto device = backend.make({});
      const std::vector<double> found = values_of(*device, by_parts, leaves);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        ASSERT_NEAR(found[i], exact[i], std::max(64 * kUnit * exact[i], 0x1p-141)) << i;
      }
    }
  }
}

void expect_as_in_float32(const std::vector<double>& found, const std::vector<double>& exact) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double y = static_cast<float>(exact[i]);  // too large for float32: an infinity
    if (std::isfinite(y)) {
      ASSERT_NEAR(found[i], y, 64 * kUnit * std::abs(y)) << i;
    } else {
      ASSERT_TRUE(std::isnan(y) ? std::isnan(found[i]) : found[i] == y) << i << " " << found[i];
    }
  }
}

// K in one share, and in several, whose sums are added.
TEST(SplitProductTest, InfinitiesAndNaNsAreWhereTheyBelong) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const std::int64_t last : {139, 699}) {
    const Sizes s{130, 150, last + 1};
    const Program by_parts = product(s, true);
    Tensors leaves = random_leaves(by_parts, 1.0, 2.0);
    std::vector<double> x = to_doubles(leaves.at("x")), w = to_doubles(leaves.at("w"));
    const auto at = [&](std::int64_t row, std::int64_t k) {
      return static_cast<std::size_t>(row * s.k + k);
    };
    x[at(5, 3)] = kInfinity;
    x[at(6, 9)] = std::nan("");
    x[at(7, 0)] = kInfinity;
    x[at(7, last)] = -kInfinity;
    w[at(11, 3)] = -1;
    w[at(12, 3)] = 0;
    w[at(13, 0)] = w[at(13, 1)] = 3e38;
    w[at(149, last - 49)] = -kInfinity;
    leaves["x"] = from_doubles(DType::kF32, {s.m, s.k}, x);
    leaves["w"] = from_doubles(DType::kF32, {s.n, s.k}, w);
    const std::vector<double> exact = to_doubles(reference_values(by_parts, leaves).at("y"));
    for (const Backend& backend : backends_under_test()) {
      SCOPED_TRACE(backend.name);
      const auto device = backend.make({});
      expect_as_in_float32(values_of(*device, by_parts, leaves), exact);
    }
  }
}

TEST(SplitProductTest, TheSameBitsEveryTime) {
  const Sizes s{140, 170, 2050};
  const Program by_parts = product(s, true);
  const Tensors leaves = random_leaves(by_parts);
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({});
    const std::vector<double> first = values_of(*device, by_parts, leaves);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(values_of(*device, by_parts, leaves), first);
  }
}

}  // namespace
}  // namespace tracestep::testing
