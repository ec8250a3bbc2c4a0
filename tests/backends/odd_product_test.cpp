// Products of 16-bit operands whose rows are no multiples of 8 long, and large enough for a GPU to
// pad them: exact, however the operands lie.
#include <gtest/gtest.h>

#include "ops/functions.h"
#include "planning/cuda_plans.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep::testing {
namespace {

constexpr std::int64_t kRows = 1603, kColumns = 1605, kTerms = 1601;

// Operands of rank one, whose product is exact: at(i) of a row times weight(k), and weights that
// multiply to one at an eighth of the terms and at the last, which are the first to be lost.
double at(std::int64_t i) {
  return static_cast<double>(i % 3 - 1);
}
double weight(std::int64_t k) {
  return k % 8 == 1 || k >= kTerms - 3 ? 1.0 : 0.0;
}

template <class F>
HostTensor matrix(std::int64_t rows, std::int64_t columns, bool transposed, F&& value) {
  if (transposed) std::swap(rows, columns);
  std::vector<double> out;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      out.push_back(transposed ? value(c, r) : value(r, c));
  }
  return from_doubles(DType::kBF16, {rows, columns}, out);
}

TEST(OddProductTest, ThesePayOnAGpu) {
  const ProductSizes odd{.m = kRows, .n = kColumns, .k = kTerms};
  const auto pays = [](const ProductSizes& sizes) { return plan_padded_product(sizes).pays; };
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      ProductSizes sizes = odd;
      sizes.a_transposed = ta;
      sizes.b_transposed = tb;
      EXPECT_TRUE(pays(sizes)) << ta << tb;
    }
  }
  EXPECT_FALSE(pays({.m = kRows, .n = 1600, .k = 1600})) << "rows are whole";
  EXPECT_FALSE(pays({.m = 1600, .n = 1600, .k = kTerms, .a_transposed = true})) << "rows are whole";
  EXPECT_FALSE(pays({.m = kRows, .n = kColumns, .k = kTerms, .element_bytes = 4})) << "float32";
  EXPECT_FALSE(pays({.m = kRows, .n = kColumns, .k = kTerms, .batch = 2})) << "several matrices";
  EXPECT_FALSE(pays({.m = kRows, .n = 63, .k = kTerms})) << "copies cost more";
}

TEST(OddProductTest, SumsAreExactHoweverOperandsLie) {
  ops::register_all();
  double sum = 0;
  for (std::int64_t k = 0; k < kTerms; ++k) sum += weight(k);
  const auto a_value = [](std::int64_t i, std::int64_t k) { return at(i) * weight(k); };
  const auto b_value = [](std::int64_t k, std::int64_t j) { return at(j + 1) * weight(k); };
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Builder b("product");
      const Tensors leaves{{"x", matrix(kRows, kTerms, ta, a_value)},
                           {"w", matrix(kTerms, kColumns, tb, b_value)}};
      const Val x = b.input("x", {DType::kBF16, leaves.at("x").shape}),
                w = b.input("w", {DType::kBF16, leaves.at("w").shape});
      b.output("y", b.call1("matmul", {x, w}, {{"transpose_a", ta}, {"transpose_b", tb}}));
      const Program program = b.finish();
      for (const Backend& backend : backends_under_test()) {
        SCOPED_TRACE(fmt::format("{} {} {}", backend.name, ta, tb));
        const auto device = backend.make({.guarded = true});
        const std::vector<double> y = to_doubles(run_program(*device, program, leaves).at("y"));
        for (std::int64_t i = 0; i < kRows; ++i) {
          for (std::int64_t j = 0; j < kColumns; ++j)
            ASSERT_EQ(y[static_cast<std::size_t>(i * kColumns + j)], at(i) * at(j + 1) * sum)
                << i << " " << j;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tracestep::testing
